"""What a file is, told by its first bytes, never by its name."""

from __future__ import annotations

import re

from gpudiag.errors import InputError
from gpudiag.trace.categories import CATEGORIES, FIRST_DEVICE, LAST_DEVICE, LAST_HOST, Row
from gpudiag.trace.frame import TOKEN
from gpudiag.trace.kinds import KINDS
from gpudiag.trace.metadata import KINETO_KEYS

KINETO = "kineto"
EVENT_LOG = "event_log"
# Categories that only PyTorch's profiler writes; the others are words any tool may use.
OWN_CATEGORIES = frozenset(
    name
    for name, row in CATEGORIES.items()
    if row <= LAST_HOST or FIRST_DEVICE <= row <= LAST_DEVICE or row == Row.DROPPED
)
_OWN_CATEGORY = re.compile(
    rb'"cat"\s*:\s*"(?:' + b"|".join(re.escape(c.encode()) for c in OWN_CATEGORIES) + rb')"'
)
_MAGIC = (
    (b"SQLite format 3\0", "sqlite"),
    (b"PAR1", "parquet"),
    (b"PK\x03\x04", "zip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\xff\xfe", "utf16"),
    (b"\xfe\xff", "utf16"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_EVENT_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[\s*\{')
_KINETO_KEYS = frozenset(k.encode() for k in KINETO_KEYS)
# Any line will do: the first may be torn.
_EVENT_LOG = re.compile(
    rb'(?:\A|\n)\s*\{"k"\s*:\s*"(?:proc|anchor|dist|step|ckpt|dl_wait|gc|eval|compile|alloc|tokens)"'
)
_JSON_LINES = re.compile(rb"\s*\{[^\n]*\}\s*\n\s*\{")
_PHASE = re.compile(rb'\bph"?\s*:')
_TAR_MAGIC_AT = 257
_SYMLINK_BYTES = 4096
_BINARY_SHARE = 0.05  # of bytes that plain text doesn't have
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f-\xff]")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_PROTOBUF_FIELD_1 = 0x0A  # an XSpace starts with its first plane
_XLA_PLANE = re.compile(rb"/(?:host|device):")
_PATH = re.compile(rb"[^\s:*?<>|]+/[^\s:*?<>|]+")
_TEXT_KINDS = (  # in this order; on the first bytes of a text file, any case
    ("git_lfs", rb"\Aversion https://git-lfs"),
    ("xml", rb"\A\s*<\?xml"),
    ("html", rb"\A\s*<(?:!doctype html|html)"),
    ("prometheus", rb"^# (?:HELP|TYPE) \w+|^DCGM_FI_\w+\{"),
    ("dcgm_text", rb"^#\s*Entity\b|^Error setting watches"),
    ("smi_csv", rb"\A[^\n]*(?:utilization\.gpu|memory\.used|power\.draw|GPU Utilization)"),
    ("smi_text", rb"^#\s+gpu\b|\bNVIDIA-SMI \d|^=+NVSMI LOG=+|^GPU \d+: [^\n]*\(UUID: "),
    ("smi_csv", rb"\A\s*timestamp, *gpu_(?:name|uuid)"),
    ("nccl_tests", rb"^# nThread|^#\s+out-of-place\s+in-place|^# Using devices"),
    ("infiniband", rb"^CA '|^# Port|^Port\w+:\.{3}|^Infiniband device|\bibpanic:"),
    ("training_log", rb":::MLLOG|\b(?:loss|iteration|step|epoch)\b\s*[:=\d]|\btflops\b|\bmfu\b"),
)  # fmt: skip
_TEXT = [(kind, re.compile(pattern, re.IGNORECASE | re.MULTILINE)) for kind, pattern in _TEXT_KINDS]


class NotATraceError(InputError):
    """The file is of a known kind, but no trace that can be read."""

    def __init__(self, path: str, kind: str) -> None:
        name, fix = KINDS[kind]
        super().__init__(
            f"{path}: is {name}", "A PyTorch profiler (Kineto) trace was expected.", fix
        )
        self.path = path
        self.kind = kind
        self.name = name

    def __reduce__(self) -> tuple[type[NotATraceError], tuple[str, str]]:
        """Make the same again in another process."""
        return NotATraceError, (self.path, self.kind)


def detect(head: bytes) -> str:
    """Return the kind of a file from its first bytes: KINETO, EVENT_LOG, else a key of KINDS."""
    if not head:
        return "empty"
    kind = _by_magic(head)
    if kind is not None:
        return kind
    if _EVENT_LOG.search(head):
        return EVENT_LOG
    start = head.lstrip()[:1]
    if start == b"{":
        return _json_object(head)
    if start == b"[":
        return _json_list(head)
    # damaged at its start
    return KINETO if _EVENT_ARRAY.search(head) else _text(head)


def _by_magic(head: bytes) -> str | None:
    if head[_TAR_MAGIC_AT:].startswith(b"ustar"):
        return "tar"
    if _PICKLE.match(head):
        return _pickle(head)
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    return _database(head) if kind == "sqlite" else kind


def _database(head: bytes) -> str:
    nsys = (b"CUPTI_ACTIVITY", b"NVTX_EVENTS", b"TARGET_INFO", b"StringIds", b"META_DATA_EXPORT")
    return "nsys" if any(name in head for name in nsys) else "sqlite"


def _pickle(head: bytes) -> str:
    """Tell pickles apart by the words in them; nothing is ever loaded."""
    if b"pg_config" in head or b"nccl_version" in head:
        return "flight_recorder"
    return "memory_snapshot" if b"device_traces" in head or b"segments" in head else "pickle"


def _json_object(head: bytes) -> str:
    keys = _outer_keys(head)
    is_trace = b"traceEvents" in keys
    tests = (  # first match wins
        (b"nodes" in keys and keys & {b"schema", b"start_ts"}, "execution_trace"),
        (keys & {b"pg_config", b"nccl_version"} and not is_trace, "flight_recorder"),
        (keys & {b"device_traces", b"segments"}, "memory_snapshot"),
        (b'"resultType"' in head and b"DCGM_" in head, "prometheus"),
        (is_trace or keys & _KINETO_KEYS, _chrome(head, keys)),
        (_JSON_LINES.match(head), "json_lines"),
        # broken quotes hide keys, and a long preamble may stand before the events: reading tells
        (b'"traceEvents"' in head or not _ends(head), KINETO),
    )
    return next((kind for found, kind in tests if found), "json")


def _chrome(head: bytes, keys: set[bytes]) -> str:
    if keys & _KINETO_KEYS or _OWN_CATEGORY.search(head):
        return KINETO
    xla = (b'"/device:', b'"/host:', b"highres-ticks")
    return "jax" if any(mark in head for mark in xla) else KINETO


def _json_list(head: bytes) -> str:
    if re.match(rb"\s*\[\s*\[", head):
        return "memory_timeline"
    if re.match(rb"\s*\[\s*(?:\{|\]|,|\Z)", head):
        return KINETO if _PHASE.search(head) else "json"
    return _text(head)


def _ends(head: bytes) -> bool:
    """Tell whether the outermost object closes within the head."""
    depth = 0
    for token in TOKEN.finditer(head):
        depth += (token[0] == b"{") - (token[0] == b"}")
        if depth == 0:
            return True
    return False


def _outer_keys(head: bytes) -> set[bytes]:
    """Return the keys of the outermost object, as far as the head goes."""
    keys: set[bytes] = set()
    depth = 0
    for token in TOKEN.finditer(head):
        first = token[0][:1]
        if first in (b"{", b"["):
            depth += 1
        elif first in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and head[token.end() : token.end() + 8].lstrip().startswith(b":"):
            keys.add(token[0][1:-1])
    return keys


def _text(head: bytes) -> str:
    head = _COLOUR.sub(b"", head)
    if len(_CONTROLS.findall(head)) > _BINARY_SHARE * len(head):
        return "xplane" if head[0] == _PROTOBUF_FIELD_1 and _XLA_PLANE.search(head) else "binary"
    for kind, pattern in _TEXT:
        if pattern.search(head):
            return kind
    if len(head) <= _SYMLINK_BYTES and _PATH.fullmatch(head.strip()):
        return "symlink"
    return "text"
