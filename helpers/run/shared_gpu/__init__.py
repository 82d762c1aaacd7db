"""One GPU for a class: notebooks send compiled kernels as data to a service, which runs one at a time on each GPU.

    a notebook             the service: `course gpu serve`              one Dask worker per GPU
    sending ──HTTPS──> service: token, limits, turns ──TLS, Dask──> judging ──pipe──> candidate: the kernel

What travels is JSON: PTX, a grid, and arguments as bytes or as how to make them (`protocol`). Nothing is unpickled that a learner sent,
no Python of a learner runs, and NVIDIA's compiler does not either: the notebook compiles, because a compiler reads every file that a
source includes. The clock that a time is held to and the comparison with the right result are in `judging`, outside the process that
loads the kernel, which is ended when its time is over.
"""
