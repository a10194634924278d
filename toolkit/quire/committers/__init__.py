"""For users' own Spark jobs: which committer to use, and what each of them really guarantees.

quire.committers.lab.run(…)      committer × fault → the guarantees, measured on this machine
"""
