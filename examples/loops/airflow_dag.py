"""A run of quire each ten minutes by Apache Airflow: each is one commit, a failed or killed one is gone on with by the next try."""

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

with DAG(
    "quire_logs",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run takes all that is new, so those that were missed have nothing to do
    max_active_runs=1,  # two at once would be safe, and do the same work
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
) as dag:
    # A task that is cleared or timed out sends SIGTERM: the commit under way ends, or the next try goes on with the job.
    BashOperator(
        task_id="consolidate",
        bash_command="exec quire consolidate /data/in/logs /data/logs --min-age '1 min' --outage '5 min' --quiet --json",
        skip_on_exit_code=None,
    )
