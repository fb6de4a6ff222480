"""gpudiag mfu and gpudiag doctor --gpus, run as users run them."""

from __future__ import annotations

import json

import pytest
import require
from cli.tiny import gpudiag, write_trace

from gpudiag.hardware import devices

LLAMA3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
SPEED = ("--tokens-per-s", "1.9M", "--gpus", "256", "--gpu", "NVIDIA H100 80GB HBM3")
NUMBERS = ("--params", "7B", "--layers", "32", "--hidden", "4096", "--seq", "4096")
MIG = "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
SLOW = ("--tokens-per-s", "1k", "--gpus", "1", "--peak-tflops", "312")


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA3_8B))
    return path


def figures(*arguments):
    done = gpudiag("mfu", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_convention(found):
    return {one["id"]: one for one in found["conventions"]}


def test_a_config_and_a_throughput_make_an_mfu(config):
    """Worked out by hand for Llama 3 8B at 8192 tokens."""
    found = figures("--model", config, "--seq", "8192", *SPEED)
    layer = 2 * 4096 * (4096 + 2 * 1024 + 4096) + 2 * 3 * 4096 * 14336
    forward = 32 * (layer + 4 * 4096 * 8192) + 2 * 4096 * 128256
    assert found["chosen"]["id"] == "gpudiag"
    assert found["chosen"]["flops_per_token"] == 3 * forward
    expected = 1.9e6 * 3 * forward / (256 * 989.4e12)
    assert found["chosen"]["mfu"] == pytest.approx(expected, rel=1e-12)
    assert found["chosen"]["hfu"] == found["chosen"]["mfu"]


def test_the_same_run_in_every_convention(config):
    """Half of attention, 6 N, embeddings left out: each by its own formula."""
    found = by_convention(figures("--model", config, "--seq", "8192", *SPEED))
    params = 8_030_261_248
    attention = 12 * 32 * 4096 * 8192
    assert found["6n"]["flops_per_token"] == 6 * params
    assert found["palm"]["flops_per_token"] == 6 * params + attention
    assert found["torchtitan"]["flops_per_token"] == 6 * (params - 128256 * 4096) + attention
    full = found["megatron-before-2025-03"]["flops_per_token"]
    assert full - found["megatron"]["flops_per_token"] == attention / 2
    assert found["gpudiag"]["flops_per_token"] == full


def test_palm_540b_as_published():
    """PaLM, table 3: 238.3 k tokens/s on 6144 chips of 275 TFLOP/s is 45.7 % without attention."""
    told = ("--params", "540.35e9", "--tokens-per-s", "238300", "--gpus", "6144")
    found = figures(*told, "--peak-tflops", "275")
    assert found["chosen"]["id"] == "6n"
    assert 100 * found["chosen"]["mfu"] == pytest.approx(45.73, abs=0.005)


@pytest.mark.parametrize(
    "speed",
    [
        ("--tokens-per-s", "64k"),
        ("--tokens-per-s-per-gpu", "1,000"),
        ("--tokens-per-step", "32k", "--step-time", "500ms"),
        ("--tokens-per-step", "32000", "--step-time", "0.5"),
        ("--tokens-per-second", "64000"),
        ("--batch", "8", "--step-time", "512ms"),
    ],
)
def test_a_throughput_can_be_given_in_each_way(speed):
    """They are the same run."""
    found = figures(*NUMBERS, *speed, "--gpus", "64", "--peak-tflops", "312")
    assert found["tokens_per_s"] == 64_000


def test_recomputation_makes_hfu_larger(config):
    """Full: each layer's forward once more; selective: attention alone."""
    shared = ("--model", config, "--seq", "8192", *SPEED, "--recompute")
    none, selective, full = (
        figures(*shared, kind)["chosen"] for kind in ("none", "selective", "full")
    )
    again = selective["hw_flops_per_token"] - none["hw_flops_per_token"]
    assert again == 32 * 4 * 4096 * 8192
    logits = 2 * 4096 * 128256
    assert full["hw_flops_per_token"] == pytest.approx(
        none["flops_per_token"] * 4 / 3 - logits, rel=1e-12
    )
    assert none["mfu"] == selective["mfu"] == full["mfu"]


def test_the_formula_is_shown_with_its_numbers(config):
    """And the convention, the denominator and the number of GPUs."""
    shown = gpudiag("mfu", "--model", config, "--seq", "8192", *SPEED).stdout
    text = " ".join(shown.split())
    assert text.startswith("MFU 43.4 %, HFU 43.4 %: 429.8 of 989.4 TFLOP/s per GPU on 256 GPUs.")
    assert "1,900,000 tokens/s × 57.91 GFLOP ÷ (256 × 989.4 TFLOP/s) = 43.4 %" in text
    assert "attention full" in text


def test_causal_attention_counts_half(config):
    """--attention causal chooses the convention of the first line."""
    found = figures("--model", config, "--seq", "8192", *SPEED, "--attention", "causal")
    assert found["chosen"]["id"] == "gpudiag-causal"
    assert figures(*NUMBERS, *SLOW, "--attention", "causal")["chosen"]["id"] == "palm-causal"


def test_lora_trains_adapters_alone(config):
    """Frozen weights: forward and the gradient of the input; the notes say what 6 N counts."""
    found = figures("--model", config, "--seq", "8192", *SPEED, "--lora-rank", "16")
    whole = figures("--model", config, "--seq", "8192", *SPEED)
    share = found["chosen"]["flops_per_token"] / whole["chosen"]["flops_per_token"]
    assert 2 / 3 < share < 0.8
    assert any("6 N" in note for note in found["notes"])


REFUSED = {
    "no model": (SLOW, "--model config.json"),
    "no throughput": ((*NUMBERS, "--gpus", "1", "--peak-tflops", "312"), "No throughput"),
    "two throughputs": ((*NUMBERS, *SLOW, "--tokens-per-s-per-gpu", "5"), "More than one"),
    "half a throughput": ((*NUMBERS, *SLOW, "--step-time", "1s"), "go together"),
    "no GPUs": ((*NUMBERS, "--tokens-per-s", "1", "--peak-tflops", "1"), "--gpus is missing"),
    "no peak": ((*NUMBERS, "--tokens-per-s", "1", "--gpus", "1"), "The GPU isn't given"),
    "ambiguous GPU": ((*NUMBERS, *SLOW[:4], "--gpu", "H100"), "Candidates: "),
    "unknown GPU": ((*NUMBERS, *SLOW[:4], "--gpu", "Voodoo 2"), "no row"),
    "no such peak": ((*NUMBERS, *SLOW[:4], "--gpu", "Tesla T4", "--dtype", "fp8"), "no fp8 peak"),
    "a batch without a length": (
        (*NUMBERS[:-2], "--batch", "8", "--step-time", "1s", *SLOW[2:]),
        "--batch with --seq",
    ),
    "a dimension without heads": ((*NUMBERS, *SLOW, "--head-dim", "8"), "--head-dim needs --heads"),
    "zero": ((*NUMBERS, "--tokens-per-s", "0", *SLOW[2:]), "--tokens-per-s can't be"),
    "negative": ((*NUMBERS, "--tokens-per-s=-5", *SLOW[2:]), "--tokens-per-s can't be"),
    "nan": ((*NUMBERS, "--tokens-per-s", "nan", *SLOW[2:]), "--tokens-per-s can't be"),
    "infinite": ((*NUMBERS, "--tokens-per-s", "1e999", *SLOW[2:]), "--tokens-per-s can't be"),
    "a fraction": ((*NUMBERS, *SLOW[:2], "--gpus", "1.5", *SLOW[4:]), "whole number"),
    "misspelt": ((*NUMBERS, *SLOW, "--recompute", "ful"), "Did you mean full"),
    "LoRA by numbers": ((*NUMBERS, *SLOW, "--lora-rank", "8"), "need the model's shapes"),
    "a convention that lacks": ((*NUMBERS, *SLOW, "--convention", "megatron"), "megatron can't be"),
    "causal and a convention": (
        (*NUMBERS, *SLOW, "--attention", "causal", "--convention", "6n"),
        "exclude each other",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_worked_out_is_refused(name):
    """Exit 2, what is wrong and what to do; never a guess, never a traceback."""
    arguments, said = REFUSED[name]
    done = gpudiag("mfu", *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr
    assert not done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("speed", "reasons"),
    [
        (
            "1e4",
            (
                "--attention causal is 88.",
                "GPUs than 1: it takes 2 at least",
                "micro-batches",
                "312",
            ),
        ),
        ("9M", ("a unit", "--active-params", "more GPUs than 1", "another GPU or dtype")),
    ],
)
def test_above_the_peak_is_an_error_with_likely_reasons(speed, reasons):
    """Exit 1, nothing on stdout, not even as JSON."""
    numbers = ("--params", "3.5B", "--layers", "32", "--hidden", "4096", "--seq", "8192")
    for form in ((), ("--json",)):
        done = gpudiag("mfu", *numbers, "--tokens-per-s", speed, *SLOW[2:], *form)
        assert done.returncode == 1, done.stderr
        assert not done.stdout
        assert done.stderr.startswith("gpudiag: MFU would be ")
        assert all(reason in done.stderr for reason in reasons), done.stderr


def test_hfu_above_the_peak_is_one_too(config):
    """MFU 80 % cannot be where a third more was executed."""
    speed = ("--tokens-per-s", "14k", "--gpus", "1", "--gpu", "h100-sxm", "--recompute", "full")
    done = gpudiag("mfu", "--model", config, "--seq", "8192", *speed)
    assert done.returncode == 1
    assert "HFU would be 10" in done.stderr
    assert "--recompute full" in done.stderr


def test_palm_540b_has_heads_narrower_than_its_hidden_size():
    """PaLM, table 3: with attention, 48 heads of 256, 46.2 %."""
    told = ("--params", "540.35e9", "--layers", "118", "--hidden", "18432", "--seq", "2048")
    heads = ("--heads", "48", "--head-dim", "256", "--tokens-per-s", "238300", "--gpus", "6144")
    found = figures(*told, *heads, "--peak-tflops", "275")
    assert found["chosen"]["id"] == "palm"
    assert 100 * found["chosen"]["mfu"] == pytest.approx(46.23, abs=0.005)


def test_sixteen_gpus_are_a_sixteenth_each():
    """Tokens of the whole job over one GPU's peak are a common mistake."""
    speed = ("--tokens-per-s", "100k", "--peak-tflops", "989.4")
    share = {n: figures(*NUMBERS, *speed, "--gpus", n)["chosen"]["mfu"] for n in ("16", "32")}
    assert share["16"] == pytest.approx(2 * share["32"])


def test_a_peak_with_sparsity_is_told():
    """1979 is printed for an H100's bf16; the figure is worked out all the same, with the note."""
    found = figures(*NUMBERS, *SLOW[:4], "--peak-tflops", "1979")
    assert any("2:4 sparsity" in note and "989.4" in note for note in found["notes"])
    assert not figures(*NUMBERS, *SLOW[:4], "--peak-tflops", "1979", "--dtype", "fp8")["notes"]


def test_a_mig_instance_has_its_share_of_the_peak():
    """And it's said which."""
    found = figures(*NUMBERS, "--tokens-per-s", "500", "--gpus", "1", "--gpu", MIG)
    assert found["peak_tflops"] == pytest.approx(312 * 14 / 108)
    assert any("14 of 108 SMs" in note for note in found["notes"])


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b"\xff\xfe", b"[" * 200_000])
def test_a_file_that_is_no_config_is_named(tmp_path, content):
    """Exit 3 with the file's name."""
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    done = gpudiag("mfu", "--model", path, "--seq", "128", *SLOW)
    assert done.returncode == 3
    assert "odd.json" in done.stderr


def test_a_missing_config_is_named(tmp_path):
    """Exit 3: no such file."""
    done = gpudiag("mfu", "--model", tmp_path / "none.json", "--seq", "128", *SLOW)
    assert done.returncode == 3
    assert "none.json" in done.stderr


def test_a_folder_with_a_config_will_do(config):
    """As transformers keeps models."""
    assert figures("--model", config.parent, "--seq", "8192", *SPEED)["model"] == "llama"


def test_doctor_json_is_pure_and_holds_the_whole_table():
    """Sources and conflicts too."""
    done = gpudiag("doctor", "--gpus", "--json")
    assert done.returncode == 0
    assert not done.stderr
    rows = {row["key"]: row for row in json.loads(done.stdout)["gpus"]}
    assert list(rows) == [row.key for row in devices()]
    assert rows["h100-sxm"]["dense_tflops"]["bf16"] == 989.4
    assert rows["b300"]["conflicts"]


def test_doctor_lists_every_gpu():
    """A row for each, and the peak that MFU divides by."""
    shown = gpudiag("doctor", "--gpus", env={"COLUMNS": "200", "PATH": "/usr/bin"}).stdout
    assert all(row.key in shown for row in devices())
    line = next(line for line in shown.splitlines() if line.split()[:1] == ["h100-sxm"])
    assert "NVIDIA H100 80GB HBM3" in line
    assert "989.4" in line.split()


GPT2 = {"model_type": "gpt2", "n_embd": 2048, "n_layer": 4, "n_head": 16, "vocab_size": 32000}
HEALTHY = require.SAMPLES / "sim-healthy"


@pytest.fixture
def gpt2(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GPT2 | {"n_positions": 2048}))
    return path


def test_traces_tell_all_but_the_model(gpt2):
    """The model's FLOPs over the trace's time are the FLOPs that the trace's kernels did."""
    found = figures("--model", gpt2, HEALTHY)
    counted = json.loads(gpudiag("analyze", HEALTHY, "--json").stdout)
    assert found["chosen"]["mfu"] == pytest.approx(counted["job"]["mfu"], rel=0.02)
    assert found["gpus"] == 1
    assert found["peak_tflops"] == 989.4
    assert any("8,192 of a rank" in note for note in found["notes"])


def test_what_is_given_beats_the_traces_and_is_said(gpt2):
    """Twice the GPUs, half the MFU, and a remark for each difference."""
    found = figures("--model", gpt2, HEALTHY, "--gpus", "2", "--step-time", "20ms")
    assert found["tokens_per_s"] == pytest.approx(8192 / 0.02)
    assert "--gpus 2 is used; the traces tell 1." in found["notes"]
    assert any(note.startswith("--step-time 20ms is used") for note in found["notes"])


def test_traces_without_an_embedding_name_the_option_to_give(gpt2, tmp_path):
    """No number is guessed."""
    trace = tmp_path / "rank0.json"
    write_trace(trace)
    done = gpudiag("mfu", "--model", gpt2, "--gpu", "h100-sxm", trace)
    assert done.returncode == 2
    assert "--tokens-per-step" in done.stderr
    assert "no embedding" in done.stderr.lower()


def test_what_the_traces_tell_is_said_where_it_is_used_and_where_it_differs(gpt2):
    """Where each number is from; a throughput or a GPU that isn't the traces' is named."""
    notes = figures("--model", gpt2, HEALTHY)["notes"]
    for start in ("GPUs: 1, those of the traces", "Tokens per step: 8,192", "The step's time is"):
        assert any(note.startswith(start) for note in notes)
    notes = figures("--model", gpt2, HEALTHY, "--tokens-per-s", "5k", "--gpu", "h200")["notes"]
    assert any(note.startswith("--tokens-per-s 5k is used; the traces tell") for note in notes)
    assert any(note.startswith("--gpu h200 is used; the traces tell NVIDIA H100") for note in notes)
    assert not any(note.startswith("Tokens per step") for note in notes)


def test_an_embedding_that_is_not_the_models_is_refused(gpt2):
    """Half of the rows: the table is parted among ranks, or of another model."""
    gpt2.write_text(json.dumps(GPT2 | {"n_positions": 2048, "vocab_size": 64000}))
    done = gpudiag("mfu", "--model", gpt2, HEALTHY)
    assert done.returncode == 2
    assert "embedding has 32,000 rows, the model's vocabulary 64,000" in done.stderr
    assert "--tokens-per-step" in done.stderr
    assert gpudiag("mfu", "--model", gpt2, HEALTHY, "--tokens-per-step", "8k").returncode == 0


def test_a_runs_events_tell_tokens_or_sequences(gpt2, tmp_path):
    """Where no shape does; sequences need their length."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_trace(folder / "rank0.json")
    proc = {"k": "proc", "schema": 1, "pid": 1, "rank": 0, "clock": {"mono_ns": 0, "wall_ns": 0}}
    for line in ({"tokens": 64}, {"samples": 4}):
        log = [proc, {"k": "tokens", "t": 0} | line]
        (folder / "rank0.jsonl").write_text("\n".join(map(json.dumps, log)))
        found = figures("--model", gpt2, "--seq", "16", folder)
        assert found["tokens_per_s"] == pytest.approx(64 / 0.001)
        assert any("from its run's event log" in note for note in found["notes"])
    done = gpudiag("mfu", "--model", gpt2, folder)
    assert done.returncode == 2
    assert "--seq" in done.stderr


def test_traces_of_which_part_is_unreadable_are_said(gpt2, tmp_path):
    """A figure from what is left, and exit 4."""
    folder = tmp_path / "run"
    folder.mkdir()
    write_trace(folder / "rank0.json")
    (folder / "rank0.jsonl").write_text(
        '{"k":"proc","pid":1,"rank":0,"clock":{"mono_ns":0,"wall_ns":0}}\n'
        '{"k":"tokens","tokens":64}\n{torn'
    )
    done = gpudiag("mfu", "--model", gpt2, "--seq", "16", folder)
    assert done.returncode == 4
    assert "1 of 3 lines" in done.stderr
    assert done.stdout.startswith("MFU")


def test_doctor_says_what_is_here_and_details_of_a_gpu():
    """Versions of what is installed; every figure of a row with its source."""
    found = {one["id"]: one for one in json.loads(gpudiag("doctor", "--json").stdout)["checks"]}
    assert found["numpy"]["ok"]
    assert found["python"]["found"].count(".") == 2
    shown = gpudiag("doctor", "--gpus", "NVIDIA H100 80GB HBM3").stdout
    for text in ("h100-sxm", "bf16 989.4", "behind the peaks 1830 MHz", "conflict", "datasheet"):
        assert text in shown
    assert gpudiag("doctor", "--gpus", "h101").returncode == 2
    assert gpudiag("doctor", "h100-sxm").returncode == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10**9),
        ("num_attention_heads", 0),
        ("num_key_value_heads", 0),
        ("vocab_size", 0),
        ("hidden_size", 10**29),
    ],
)
def test_a_model_that_cannot_be_is_refused(tmp_path, field, value):
    """No figure, no bug, no endless count: the field is named."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA3_8B | {field: value}))
    done = gpudiag("mfu", "--model", path, "--seq", "8192", *SPEED, timeout=20)
    assert done.returncode == 2
    assert field in done.stderr


def test_more_experts_a_token_than_there_are_is_refused(tmp_path):
    """Nine of eight."""
    mixtral = LLAMA3_8B | {"model_type": "mixtral", "num_local_experts": 8}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(mixtral | {"num_experts_per_tok": 9}))
    done = gpudiag("mfu", "--model", path, "--seq", "8192", *SPEED)
    assert done.returncode == 2
    assert "9 of 8 experts" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ("--mtp", "99999999999", *SPEED),
        ("--tokens-per-step", "1e308", "--step-time", "1e-308s", *SPEED[2:]),
        ("--tokens-per-s", "1e300", *SPEED[2:]),
    ],
)
def test_amounts_beyond_any_machine_are_refused(config, options):
    """Exit 2, not a bug of ours."""
    done = gpudiag("mfu", "--model", config, "--seq", "8192", *options)
    assert done.returncode == 2
    assert "bug" not in done.stderr
