"""The committer interface of Hadoop over quire's commit log: jobs, tasks and attempts of a user's own."""
