"""How a process is known as one that a stage has started."""

STARTED = "ARMSLENGTH_STAGE"  # in its environment: `armslength unlock` ends it with a killed study's other jobs
