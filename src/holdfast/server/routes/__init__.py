"""One file for each resource."""

from holdfast.server.routes import (
    alerts,
    audit,
    bulk,
    checkpoints,
    doctor,
    health,
    plans,
    queues,
    states,
    stats,
    suspended,
    task_events,
    tasks,
    telegram,
    tenants,
    triggers,
    types,
    workers,
    workflows,
)

ALL = tuple(
    module.router
    for module in (
        workflows,
        tasks,
        task_events,
        types,
        plans,
        triggers,
        telegram,
        stats,
        suspended,
        checkpoints,
        bulk,
        workers,
        queues,
        tenants,
        alerts,
        audit,
        doctor,
        states,
        health,
    )
)
