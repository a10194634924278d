"""One loop for every pipeline: recover, take up an open job or plan and freeze one, run its tasks, commit, publish, clean."""
