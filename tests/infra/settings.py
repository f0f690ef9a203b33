"""Which settings a deployment sets where."""

from tally import config


def expected(name: str) -> set[str]:
    """Return the settings that a deployment sets on a part."""
    wheres = {"everywhere", name} if name.endswith("worker") else {"everywhere", "functions", name}
    if name in ("run_task", "task_worker"):
        wheres.add("tasks")
    return {variable.name for variable in config.VARIABLES if variable.where in wheres}
