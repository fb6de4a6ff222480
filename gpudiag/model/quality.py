"""What every data-quality entry means; `gpudiag explain` and docs/reference/findings.md read it."""

from __future__ import annotations

QUALITY: dict[str, str] = {
    # of the input files
    "inputs_unreadable": "Files that were given could not be read, or are no traces; the rest was.",
    "earlier_windows": "One process wrote several windows one after the other: the latest is used.",
    "rank_assumed": "A trace records no rank, and its file name has none: ranks follow the order.",
    "ranks_missing": "The job had more ranks than traces were given.",
    "world_size_disbelieved": "The recorded number of ranks can't be: missing ranks aren't told.",
    "rank_beyond_world": "A trace records a rank that a job of the recorded size can't have.",
    "backends_differ": "The ranks name different communication backends.",
    "event_log_damaged": "Lines of a run's event log could not be used and were left out.",
    "event_log_clock": "By its clock a run's event log starts after its own trace ends: its spans "
    "were left out.",
    # of a file's bytes and events
    "gzip_truncated": "The compressed file ends early: the events before the end were read.",
    "gzip_damaged": "The compressed file is damaged inside: the events before it were read.",
    "gzip_checksum": "The compressed file's checksum is wrong: bytes were changed or lost.",
    "gzip_trailing": "Something that is no gzip data follows the compressed trace: left out.",
    "truncated": "The file is cut off: the events before the end were read.",
    "events_lost": "Damaged events could not be read and were left out.",
    "metadata_lost": "The text around the events is damaged: device names or the rank may be lost.",
    "repaired_escapes": "Invalid escapes in strings were read as they are written.",
    "repaired_control_chars": "Raw control characters in strings were accepted.",
    "repaired_utf8": "Bytes that are no UTF-8 were replaced by U+FFFD.",
    "repaired_bare_words": "Values that are no JSON (N/A, NaN) were read as missing.",
    "repaired_commas": "Superfluous commas were ignored.",
    "repaired_quotes": "Event names with unescaped quotes were read as they are written.",
    # of the records
    "device_assumed": "Device records name no device: they were taken as device 0's.",
    "device_not_recorded": "Traces of this vendor hold no kernels.",
    "device_activity_not_recorded": "A rank has no device records: only its host's time is shown.",
    "invalid_device_records": "Device records without a usable time were left out.",
    "invalid_host_records": "Host records without a usable time were left out.",
    "start_times_disbelieved": "Rows start over an hour from all the rest of their file: they were "
    "left out, for their clock, or what wrote them, is damaged.",
    "stream_overrun": "Records of one stream overlap, each is cut where the next starts.",
    "kernel_before_launch": "Device records start before their launch: the clocks differ a little.",
    "early_records": "Single device records start long before their launch: their start is wrong, "
    "and nothing was taken from it.",
    "correlations_repeated": "Launch calls share an id: only work that can be of one launch alone "
    "is linked to it.",
    "launch_not_recorded": "The launch of some device records is missing: idle time before them is "
    "idle.unknown.",
    "host_device_offset": "The device's clock was moved to the host's by more than a launch takes: "
    "idle.launch_latency can't be told, nor who left the device idle with work enqueued.",
    "no_kernels": "Copies are recorded on a device, but no kernel.",
    "graph_replay_gaps": "Gaps inside graph replays: what the device did there is not certain.",
    # of the window
    "no_window": "The window that was asked for can't be had on a device.",
    "few_periods": "The window holds few whole steps: low confidence.",
    "no_common_steps": "No step is recorded on all ranks: each rank has a window of its own.",
    "steps_without_device_activity": "Steps launched nothing on the device, and are in no period.",
    "steps_repeated": "Step numbers come again, as where a file holds two runs: they were counted "
    "on, so all steps are kept.",
    # of communication
    "collectives_unmatched": "Collectives have no partner on other ranks: comm.unsplit holds them.",
    "clock_unreached": "Ranks share no collective with the others: their clocks can't be aligned.",
    "clock_inconsistent": "No clock offset fits all collectives of two ranks: waits are less sure.",
    "members_missing": "Members of the groups have no trace: a wait may be for one of them.",
    "pipeline_unclear": "Sends and receives between ranks fit no pipeline that is known whole: its "
    "bubble isn't told from stragglers.",
    # of MFU
    "mfu_unknown": "There is no MFU, or not of every rank; the entry says why.",
    "flops_coverage": "Part of the tensor kernels' time has no FLOP count: MFU is a lower bound.",
}
