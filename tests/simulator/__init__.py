"""A discrete-event model of training ranks that writes Kineto traces whose truth is known.

It imports nothing of gpudiag: the analyzer and the simulator each implement the accounting of
docs/concepts on their own, so that they can't share a mistake. Everything is integer nanoseconds.

    from simulator import scenarios
    job = scenarios.build("slow_loader", steps=6)
    job.write(directory)  # rank0.pt.trace.json.gz ... and truth.json
"""
