"""Deliberate defects: one for each requirement, with the test that finds it.

A defect replaces a piece of the source by another. The test beside it is one of those that
docs/internals/requirements.md names for the requirement. It fails in a copy of the tree with the
defect.
"""

from __future__ import annotations

from typing import NamedTuple


class Defect(NamedTuple):
    requirement: str
    path: str  # below the root of the tree
    old: str  # stands there once
    new: str
    test: str  # as docs/internals/requirements.md names it


DECIDE = "src/holdfast/domain/task/decide.py"
OPERATE = "src/holdfast/domain/task/operate.py"
CHECKPOINT = "src/holdfast/domain/task/checkpoint.py"
STATE = "src/holdfast/domain/task/state.py"
MEMORY_TASKS = "src/holdfast/stores/memory/tasks.py"
MEMORY_STATE = "src/holdfast/stores/memory/state.py"
MEMORY_TRIGGERS = "src/holdfast/stores/memory/triggers.py"
EXECUTOR = "src/holdfast/runtime/worker/executor.py"
SCHEDULER = "src/holdfast/runtime/schedule/scheduler.py"
RECORD = "src/holdfast/stores/redis/encoding/record.py"
TRANSITIONS_LUA = "src/holdfast/stores/redis/tasks/shared/transitions.lua"
FIRING = "src/holdfast/domain/trigger/firing.py"

DEFECTS = (
    Defect(
        "P1",
        "src/holdfast/domain/task/retry.py",
        "@dataclass(frozen=True, slots=True)",
        "@dataclass(slots=True)",
        "tests/docs/test_requirements_gaps.py::test_a_retry_policy_is_replaced_whole",
    ),
    Defect(
        "P2",
        CHECKPOINT,
        "timestamp=datetime.fromtimestamp(now, UTC),",
        "timestamp=datetime.fromtimestamp(now),",
        "tests/domain/task/test_checkpoint.py::test_the_timestamp_is_written_in_utc_with_its_zone",
    ),
    Defect(
        "P3",
        TRANSITIONS_LUA,
        "  call('EXPIRE', t.record, t.seconds)\n",
        "",
        "tests/stores/redis/tasks/test_documents.py::test_only_what_has_settled_expires",
    ),
    Defect(
        "P4",
        RECORD,
        'Field("lastCompletedStageIndex", str, int)',
        'Field("lastStage", str, int)',
        "tests/stores/redis/tasks/test_documents.py::test_the_record_is_a_hash_with_the_documents_fields",
    ),
    Defect(
        "P5",
        MEMORY_STATE,
        '        self.log((event,), request="")\n',
        "",
        "contract/tasks/apply.py::ApplyContract::test_events_follow_the_versions_without_a_gap",
    ),
    Defect(
        "P6",
        MEMORY_STATE,
        "            if task.settled:\n                tenant.active = None\n",
        "            tenant.active = None\n",
        "contract/tasks/tenant_lock.py::TenantLock::"
        "test_a_task_that_rests_unsettled_stays_active_without_the_lock",
    ),
    Defect(
        "P7",
        MEMORY_STATE,
        "        return tenant is not None and tenant.active != task.id and not "
        "self.line_is_open(tenant)",
        "        return False",
        "contract/tasks/claim.py::ClaimContract::test_concurrent_claimers_get_one_task_of_a_tenant",
    ),
    Defect(
        "P8",
        "src/holdfast/engine/query.py",
        "return await self._slot.require().views.checkpoint(task.id) is not None",
        "return task.last_completed >= 0",
        "tests/engine/test_query.py::test_has_checkpoint_reads_the_checkpoint_and_not_the_record",
    ),
    Defect(
        "P9",
        "src/holdfast/settings.py",
        "tenant_lock: Duration = 9000.0",
        "tenant_lock: Duration = 900.0",
        "tests/test_settings.py::test_the_defaults_are_those_of_the_documents",
    ),
    Defect(
        "P10",
        "src/holdfast/engine/store_url.py",
        'if settings.fallback != "memory" or isinstance(error, StoreFull):',
        "if isinstance(error, StoreFull):",
        "tests/stores/redis/client/test_fallback.py::"
        "test_without_the_fallback_a_server_out_of_reach_is_an_error_that_names_it",
    ),
    Defect(
        "P11",
        "src/holdfast/runtime/worker/failure_records.py",
        "(StageTimeout, FailureKind.TIMEOUT)",
        "(StageTimeout, FailureKind.STAGE)",
        "tests/runtime/worker/test_failures.py::test_an_async_stage_is_stopped_at_its_timeout",
    ),
    Defect(
        "P12",
        DECIDE,
        "        events=(*_stage_completed(task, done, now), completed),\n"
        "        drop_checkpoint=True,\n",
        "        events=(*_stage_completed(task, done, now), completed),\n",
        "contract/tasks/bodies.py::StoredBodies::test_a_completed_task_has_no_checkpoint",
    ),
    Defect(
        "P13",
        "src/holdfast/stores/sqlite/views/find.py",
        '    elif where.tenant is not None:\n        parts = [("find_tenant", where.tenant)]\n',
        "",
        "tests/stores/sqlite/views/test_queries.py::"
        "test_a_look_for_few_among_many_is_bounded_and_goes_on_at_its_cursor",
    ),
    Defect(
        "P14",
        "src/holdfast/stores/sqlite/admin/audit.py",
        "    if outdated and not dry_run:\n",
        "    if outdated:\n",
        "tests/cli/commands/test_prune.py::test_a_dry_run_counts_and_deletes_nothing",
    ),
    Defect(
        "P15",
        "src/holdfast/observe/alerts.py",
        "    checkpoints: int = 10_000\n",
        "    checkpoints: int = 1_000_000\n",
        "tests/observe/test_prometheus_files.py::"
        "test_the_rules_and_the_service_judge_by_the_same_thresholds",
    ),
    Defect(
        "P16",
        CHECKPOINT,
        "FAILURES_KEPT = 10",
        "FAILURES_KEPT = 100",
        "tests/domain/task/test_checkpoint.py::test_the_last_failures_are_kept_without_their_tracebacks",
    ),
    Defect(
        "C1",
        CHECKPOINT,
        '    "savedAt": "timestamp",\n',
        "",
        "tests/domain/task/test_checkpoint.py::test_earlier_names_are_read_too",
    ),
    Defect(
        "C2",
        DECIDE,
        "        checkpoint=_with_failure(checkpoint, failed.failure),\n",
        "",
        "contract/tasks/bodies.py::StoredBodies::test_a_failure_is_remembered_and_moves_nothing",
    ),
    Defect(
        "C3",
        DECIDE,
        "        last_completed=index,\n        failure=None,\n",
        "        last_completed=index - 1,\n        failure=None,\n",
        "tests/runtime/worker/test_restore.py::test_a_retry_goes_on_behind_the_last_completed_stage",
    ),
    Defect(
        "C4",
        CHECKPOINT,
        "    if tuple(stages[: index + 1]) != names:\n",
        "    if set(stages[: index + 1]) - set(stages):\n",
        "tests/runtime/worker/test_restore.py::"
        "test_a_stage_inserted_or_moved_before_the_checkpoint_suspends",
    ),
    Defect(
        "C5",
        MEMORY_TASKS,
        "        return transition.checkpoint.version > there.checkpoint_version",
        "        return True",
        "contract/tasks/bodies.py::StoredBodies::test_a_checkpoint_whose_version_does_not_rise_is_refused",
    ),
    Defect(
        "C6",
        OPERATE,
        "        drop_stages=from_scratch,\n",
        "",
        "contract/tasks/bodies.py::StoredBodies::"
        "test_a_retry_from_scratch_clears_checkpoint_results_and_data",
    ),
    Defect(
        "S1",
        STATE,
        "        C.DISCARD: S.CANCELLED,\n        C.HOLD_BACK: S.FAILED,\n",
        "        C.HOLD_BACK: S.FAILED,\n",
        "tests/domain/task/test_state.py::test_a_person_can_set_a_suspended_task_going_or_discard_it",
    ),
    Defect(
        "S2",
        STATE,
        "    S.COMPLETED: {C.ROLLBACK: S.ROLLING_BACK},\n",
        "    S.COMPLETED: {C.ROLLBACK: S.ROLLING_BACK, C.CANCEL: S.CANCELLED},\n",
        "tests/domain/task/test_state.py::test_a_command_is_legal_where_the_requirements_say",
    ),
    Defect(
        "S3",
        MEMORY_TASKS,
        "        return task.lease is not None and task.lease.id == transition.lease",
        "        return True",
        "contract/tasks/apply.py::ApplyContract::test_a_write_with_another_lease_is_stale",
    ),
    Defect(
        "S4",
        "src/holdfast/domain/task/task.py",
        "            return self.pause_requested\n",
        "            return True\n",
        "tests/domain/task/test_state.py::test_to_ask_whether_a_command_is_legal_changes_nothing",
    ),
    Defect(
        "S5",
        MEMORY_STATE,
        "            if tenant.line and self.line_is_open(tenant):\n",
        "            if tenant.line and not task.settled and self.line_is_open(tenant):\n",
        "contract/tasks/tenant_line.py::TenantLines::test_the_line_goes_on_when_its_task_has_settled",
    ),
    Defect(
        "S6",
        DECIDE,
        "        events += (_retry_scheduled(task, delay, counted, now),)",
        "        events = (_retry_scheduled(task, delay, counted, now),)",
        "tests/domain/task/test_decide.py::test_a_failure_schedules_a_retry_after_the_stage_event",
    ),
    Defect(
        "S7",
        OPERATE,
        "    if task.status is Status.RUNNING:\n"
        "        asked = fact(ev.CancelRequested, task, ask.now, by=ask.by)\n"
        "        return _request(task, Command.CANCEL, ask, asked, cancel_requested=True, "
        "reason=reason)\n",
        "    if task.status is Status.RUNNING:\n"
        "        asked = fact(ev.CancelRequested, task, ask.now, by=ask.by)\n"
        "        return _request(task, Command.CANCEL, ask, asked, reason=reason)\n",
        "tests/runtime/worker/test_requests.py::test_a_cancel_during_a_stage_takes_effect_behind_it",
    ),
    Defect(
        "S8",
        DECIDE,
        '"next_undo": task.next_undo - 1',
        '"next_undo": -1',
        "tests/runtime/worker/test_rollback.py::test_a_rollback_from_completed_undoes_everything",
    ),
    Defect(
        "S9",
        STATE,
        "        C.LOSE: S.PENDING,\n    },\n    S.RETRYING",
        "        C.LOSE: S.RETRYING,\n    },\n    S.RETRYING",
        "tests/cli/commands/test_states.py::test_the_committed_diagram_is_the_present_one",
    ),
    Defect(
        "S10",
        OPERATE,
        "            before=before,\n            after=after,\n",
        "            before=after,\n            after=after,\n",
        "contract/tasks/requests.py::RequestContract::test_what_was_done_is_audited_with_the_transition",
    ),
    Defect(
        "S11",
        MEMORY_STATE,
        "            self.moves[moved] += 1\n",
        "",
        "contract/views/reads.py::TaskReads::test_moves_are_counted_with_the_time_before_them",
    ),
    Defect(
        "S12",
        DECIDE,
        "        checkpoint=saved,\n",
        "",
        "tests/docs/test_state_machine_document.py::test_full_lifecycle_with_checkpoint",
    ),
    Defect(
        "T1",
        MEMORY_TRIGGERS,
        "            return [trigger for at, trigger in self._free() if at <= due_by][:limit]",
        "            return [trigger for at, trigger in self._free() if at < due_by][:limit]",
        "contract/triggers/leases.py::TriggerLeaseContract::"
        "test_what_is_due_is_found_up_to_and_with_the_moment",
    ),
    Defect(
        "T2",
        "src/holdfast/stores/redis/encoding/plan_trigger_hash.py",
        '_time("triggerAt")',
        '_time("dueAt")',
        "tests/stores/redis/plans/test_documents_dues.py::test_a_trigger_is_a_hash_with_the_documents_fields",
    ),
    Defect(
        "T3",
        MEMORY_TRIGGERS,
        "            retry_count=trigger.retry_count + lapsed,\n",
        "",
        "contract/triggers/leases.py::TriggerLeaseContract::"
        "test_a_lapsed_lease_is_taken_over_and_counts_as_a_failed_try",
    ),
    Defect(
        "T4",
        "src/holdfast/domain/trigger/trigger.py",
        "        C.FINISH: S.COMPLETED,\n        C.PAUSE: S.PAUSED,\n"
        "        C.CANCEL: S.CANCELLED,\n",
        "        C.FINISH: S.COMPLETED,\n        C.PAUSE: S.PAUSED,\n"
        "        C.CANCEL: S.PENDING,\n",
        "tests/engine/triggers/test_trigger_requests.py::test_a_cancelled_trigger_fires_no_more",
    ),
    Defect(
        "T5",
        MEMORY_TRIGGERS,
        "        after = with_last_task(change, tasks)\n        self._put(after)\n",
        "        after = with_last_task(change, tasks)\n",
        "contract/triggers/changes.py::FireContract::test_firing_makes_the_task_and_moves_the_trigger_on",
    ),
    Defect(
        "T6",
        "src/holdfast/stores/memory/admin.py",
        "(t.id, t.ended_at, t.keep_seconds)",
        "(t.id, t.ended_at and t.created_at, t.keep_seconds)",
        "contract/records.py::RecordContract::test_its_time_counts_from_its_end",
    ),
    Defect(
        "T7",
        "src/holdfast/stores/triggers.py",
        "            self._check_id(change.after.id)\n",
        "            pass\n",
        "contract/triggers/saves.py::TriggerSaveContract::test_an_id_outside_its_alphabet_is_refused",
    ),
    Defect(
        "T8",
        MEMORY_TRIGGERS,
        "        return sorted(free, key=lambda pair: (pair[0], pair[1].id))",
        "        return free",
        "contract/triggers/leases.py::TriggerLeaseContract::test_the_earliest_is_found_first",
    ),
    Defect(
        "Q1",
        "src/holdfast/domain/task/envelope.py",
        '    Status.RETRYING: "retry",\n',
        '    Status.RETRYING: "pending",\n',
        "tests/domain/task/test_envelope.py::test_a_status_is_shown_as_the_document_calls_it",
    ),
    Defect(
        "Q2",
        MEMORY_STATE,
        "TOMBSTONE_SECONDS = 24 * 3600",
        "TOMBSTONE_SECONDS = 3600",
        "contract/admin/retention.py::Retention::test_tombstones_go_a_day_after_the_end",
    ),
    Defect(
        "Q3",
        "src/holdfast/stores/redis/shared/write_batch.lua",
        "try('XDEL', stream, unpack(of))",
        "1",
        "tests/stores/redis/tasks/test_queue.py::test_every_end_of_a_run_acknowledges_and_deletes",
    ),
    Defect(
        "Q4",
        DECIDE,
        "failures >= policy.max",
        "failures > policy.max",
        "tests/runtime/worker/test_failures.py::"
        "test_a_failing_stage_backs_off_and_is_suspended_at_the_third_failure",
    ),
    Defect(
        "Q5",
        MEMORY_TASKS,
        "            due = [task_id for at, _, task_id in waiting if at <= now][:limit]",
        "            due = [task_id for at, _, task_id in waiting if at <= now + 1][:limit]",
        "contract/tasks/due_times.py::DueTimes::test_a_retry_is_due_at_its_time_and_not_before",
    ),
    Defect(
        "Q6",
        "src/holdfast/settings.py",
        "unknown_type_after: Duration = 600.0",
        "unknown_type_after: Duration = 0.0",
        "tests/runtime/worker/test_crashes.py::"
        "test_an_unknown_type_is_handed_back_uncounted_and_suspended_after_ten_minutes",
    ),
    Defect(
        "Q7",
        OPERATE,
        '    changes: dict[str, Any] = NOT_BEGUN | {"interrupted": task.begun}\n',
        '    changes: dict[str, Any] = {"interrupted": task.begun}\n',
        "tests/runtime/worker/test_failures.py::test_a_retry_by_a_person_counts_anew_and_keeps_the_history",
    ),
    Defect(
        "Q8",
        "src/holdfast/server/routes/workflows.py",
        "WAIT_SECONDS = 20.0\nWAIT_MAX",
        "WAIT_SECONDS = 2.0\nWAIT_MAX",
        "tests/server/routes/test_workflows.py::test_apply_waits_twenty_seconds_unless_told_otherwise",
    ),
    Defect(
        "Q9",
        "src/holdfast/integrations/fastapi.py",
        "service.running(workers=workers, **options)",
        "service.running(workers=0, **options)",
        "tests/integrations/test_fastapi.py::"
        "test_workers_run_in_the_lifespan_and_the_router_serves_under_a_prefix",
    ),
    Defect(
        "Q10",
        "src/holdfast/sinks/tables.py",
        'if update else "NOTHING"',
        'if update else f"UPDATE SET {KEY_COLUMN} = excluded.{KEY_COLUMN}"',
        "tests/sinks/test_sql.py::TestSql",
    ),
    Defect(
        "Q11",
        "src/holdfast/observe/alerts.py",
        "        yield _backlog(facts, limits, queue)\n",
        "        pass\n",
        "tests/server/routes/test_capacity.py::"
        "test_a_backlog_over_its_threshold_is_an_alert_an_event_and_a_metric",
    ),
    Defect(
        "Q12",
        "src/holdfast/sinks/mongo.py",
        'raise SinkUnavailable(f"MongoDB is out of reach: {_message(error)}") from error',
        'raise InvalidInput(f"MongoDB is out of reach: {_message(error)}") from error',
        "tests/examples/test_scenarios.py::"
        "test_while_the_database_is_down_a_task_stays_in_retry_and_then_completes_by_itself",
    ),
    Defect(
        "Q13",
        "src/holdfast/server/auth/access.py",
        "if not is_same_text(secret.read(request), bot.secret):",
        "if not secret.read(request):",
        "tests/server/routes/test_telegram.py::test_whoever_does_not_know_the_secret_is_refused",
    ),
    Defect(
        "Q14",
        "src/holdfast/domain/errors.py",
        'stored_name="Contended", code="contended")',
        'stored_name="Contended", code="contended-elsewhere")',
        "tests/docs/test_runbook.py::test_all_that_the_source_has_is_told_once_and_nothing_else",
    ),
    Defect(
        "Q15",
        "src/holdfast/engine/store_url.py",
        'raise InvalidSetting("HOLDFAST_STORE", address.redact_url(url), f"unknown store',
        'raise InvalidSetting("HOLDFAST_STORE", url, f"unknown store',
        "tests/test_settings.py::"
        "test_a_store_that_nobody_knows_is_refused_without_telling_its_secret",
    ),
)
