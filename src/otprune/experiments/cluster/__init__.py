"""A sweep on a Ray cluster: a task for each run, and one store, the folder of the sweep on the driver's machine."""
