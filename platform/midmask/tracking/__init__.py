"""Tracked runs: the only home of MLflow.

    names       which store, as a URI; measure <-> metric key; imports no MLflow
    store       the store, created once; what an error of it means
    opening     which run values go to, and whether the process that writes a run lives
    lineage     datasets and models: what runs read and made
    sending     the queue of values, and the thread that carries them to the store
    runs        Tracker, what a job's driver holds; TrackedRun, one run, open to be written to
    reading     runs as rows of plain data, their files; which artifacts runs and models name
    models      finished models in the registry; imported where it is used, as MLflow's own models take long to import

Runs carry the tags `midmask.job|recipe|objective|step|corpus|fingerprint|status`; status is running, finished, failed,
killed, pruned, or cached (a run that only points, by `midmask.cached_run`, to the finished one). A trial's run also has
`midmask.sweep`, the fingerprint of its sweep.
"""
