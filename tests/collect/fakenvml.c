/* Stands in for libnvidia-ml.so.1: two GPUs that answer, a third that is lost. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, DRIVER_NOT_LOADED = 9, NOT_SUPPORTED = 3, GPU_IS_LOST = 15 };
typedef struct { unsigned long long total, free, used; } memory_t;

static const char *names[] = {"NVIDIA H100 80GB HBM3", "NVIDIA Imagined 1"};

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  return getenv("FAKE_NVML_NO_DRIVER") ? DRIVER_NOT_LOADED : SUCCESS;
}
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) {
  return code == GPU_IS_LOST ? "GPU is lost" : code == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Error";
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
  snprintf(text, length, "570.00");
  return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if (index == 2) return GPU_IS_LOST;
  *device = (void *)(uintptr_t)(index + 1);
  return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
  snprintf(text, length, "%s", names[(uintptr_t)device - 1]);
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
  (void)device;
  memory->total = 80000000000ull;
  return SUCCESS;
}
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
  (void)device; (void)current; (void)pending;
  return NOT_SUPPORTED;
}
