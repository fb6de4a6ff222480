"""The options of ``gpudiag analyze``, as the help shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Paths: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="PATH", help="Trace files, folders or globs; - is stdin.")
]
Processes: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="N", help="Ranks that are read at once. [as many as there are cores]"),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print the analysis as JSON, schema version 1.")
]
Brief: TypeAlias = Annotated[
    bool, typer.Option("--brief", help="Print the sentence and the top three lines.")
]
Verbose: TypeAlias = Annotated[
    bool, typer.Option("-v", "--verbose", help="Add every bucket, file and rank.")
]
Quiet: TypeAlias = Annotated[
    bool, typer.Option("-q", "--quiet", help="Say nothing on stderr but errors.")
]
Window: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="steps|device_span|all", help="Force the window to account for."),
]
PeakTflops: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TFLOP/S", help="Dense peak of one GPU, where its name doesn't tell it."),
]
Dtype: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="bf16|fp16|...", help="Dtype that MFU is measured in. [the one that did most FLOPs]"
    ),
]
SmClock: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--sm-clock-mhz", metavar="MHZ", help="Mean SM clock of the run, for the waterfall."
    ),
]
PipelineSchedule: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="1f1b|gpipe|...",
        help="Schedule of the pipeline: gpipe, 1f1b, interleaved, interleaved:V (V chunks a "
        "stage), zb-h1 or zb-h2. [inferred from sends and receives]",
    ),
]
Top: TypeAlias = Annotated[
    str | None, typer.Option(metavar="N", help="Rows in the tables of gaps and kernels. [5]")
]
FailOn: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ID|SEVERITY",
        help="Exit 1 if this finding, or one at least this severe, is made (repeatable).",
    ),
]
PartialOk: TypeAlias = Annotated[
    bool, typer.Option("--partial-ok", help="Exit 0 although part of the input is unreadable.")
]
Output: TypeAlias = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Also write the JSON here."),
]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Let -o overwrite a file.")]
Color: TypeAlias = Annotated[
    str | None, typer.Option(metavar="auto|always|never", help="Colour. [auto]")
]
Ascii: TypeAlias = Annotated[bool, typer.Option("--ascii", help="Write ASCII characters only.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
