"""Declarations that are wrong are refused where they are written."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NewType

import pytest
from pydantic import BaseModel, Field

from holdfast import Context, Holdfast, Retry
from holdfast.errors import DeclarationError, InvalidInput, InvalidName, InvalidPayload
from holdfast.testing import context
from holdfast.testing.plugin import MakeEngine


def test_two_tasks_of_one_name_are_refused(app: Holdfast) -> None:
    @app.task("mail.send")
    async def send(ctx: Context) -> None: ...

    with pytest.raises(DeclarationError, match=r"mail\.send"):

        @app.task("mail.send")
        async def again(ctx: Context) -> None: ...

    with pytest.raises(DeclarationError, match=r"mail\.send"):
        app.workflow("mail.send")


def test_a_refused_workflow_leaves_its_name_free(app: Holdfast) -> None:
    wrong: Any = 5
    with pytest.raises(DeclarationError):
        app.workflow("upgrade", retry=wrong)
    app.workflow("upgrade", retry=Retry(max=5))


async def test_a_misspelt_option_is_named_with_those_that_there_are(app: Holdfast) -> None:
    @app.task("mail.send")
    async def send(ctx: Context) -> None: ...

    wrong: Any = {"tennant": "t-1"}
    with pytest.raises(TypeError, match="no such option: tennant"):
        send.on(**wrong)
    with pytest.raises(TypeError, match="no such option: tennant"):
        await send.submit_many([None], **wrong)


def test_without_a_name_a_task_has_its_functions(app: Holdfast) -> None:
    @app.task
    async def send(ctx: Context, to: str) -> str:
        return to

    @app.task(retry=Retry(max=2), queue="slow")
    def count(ctx: Context) -> int:
        return 1

    @app.task()
    def sweep(ctx: Context) -> None: ...

    assert [task.name for task in (send, count, sweep)] == ["send", "count", "sweep"]
    assert (count.declared.queue, count.declared.stages[0].retry.max) == ("slow", 2)
    with pytest.raises(DeclarationError, match="send"):
        app.task(send._call)
    with pytest.raises(InvalidName, match="lambda"):
        app.task(lambda ctx: ctx.key)
    with pytest.raises(DeclarationError, match="no such option: retries"):
        app.task(retries=3)  # type: ignore[call-overload]


class Order(BaseModel):
    n: int


class BigOrder(Order):
    m: int = 0


def first_is_payload(to: str) -> None: ...
async def swapped(order: Order, ctx: Context) -> None: ...
async def other(ctx: Context, order: Order) -> None: ...
async def of_text(ctx: Context, text: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (first_is_payload, "def first_is_payload(ctx: Context, to: str)"),
        (swapped, "async def swapped(ctx: Context, order: Order)"),
    ],
)
def test_a_function_without_a_context_first_is_told_what_to_write(
    app: Holdfast, function: Any, written: str
) -> None:
    for declare in (app.task("odd"), app.task, app.workflow("flow", payload=Order).stage):
        with pytest.raises(DeclarationError, match=re.escape(written)):
            declare(function)
    assert app.registry.names() == ("flow",)


@pytest.mark.parametrize(
    ("payload", "function", "written"),
    [
        (str, other, "other takes a Order, and the payload of workflow 'flow' is a str"),
        (Order, of_text, "of_text takes a str, and the payload of workflow 'flow' is a Order"),
        (Any, other, "write app.workflow('flow', payload=Order)"),
        (int | None, of_text, "of_text takes a str"),
        (list[int], of_text, "of_text takes a str"),
    ],
)
def test_a_stage_or_undo_of_another_payload_is_told_what_to_write(
    app: Holdfast, payload: Any, function: Any, written: str
) -> None:
    flow: Any = app.workflow("flow", payload=payload)
    with pytest.raises(DeclarationError, match=re.escape(written)):
        flow.stage(function)
    with pytest.raises(DeclarationError, match=re.escape(written)):
        flow.stage(timeout="1m")(function)

    @flow.stage
    async def right(ctx: Context) -> None: ...

    with pytest.raises(DeclarationError, match=re.escape(written)):
        right.undo(function)


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        (Order, Any),
        (Order, object),
        (Order, Order),
        (BigOrder, Order),
        (Order, Order | None),
        (Order | None, Order),
        (int, float),
        (dict, dict[str, str]),
        (dict[str, Any], dict[str, int]),
        (dict[str, int], Mapping[str, int]),
        (list[Order], Sequence[Order]),
        (Any, dict[str, Any]),
        (Any, str),
        (Any, None),
        (Annotated[int, "positive"], int),
        (NewType("UserId", int), int),
        (Literal["a"], str),
        (type(None), None),
    ],
)
def test_a_stage_may_take_what_the_workflow_hands_it(
    app: Holdfast, payload: Any, wanted: Any
) -> None:
    async def stage(ctx: Context, payload: Any) -> None: ...

    stage.__annotations__["payload"] = wanted
    flow: Any = app.workflow("flow", payload=payload)
    assert flow.stage(stage).name == "stage"


async def test_what_annotated_adds_to_a_payload_counts(
    app: Holdfast, holdfast_engine: MakeEngine
) -> None:
    @app.task
    async def take(ctx: Context, number: Annotated[int, Field(gt=3)]) -> int:
        return number

    holdfast_engine(app)
    with pytest.raises(InvalidPayload, match="greater than 3"):
        await take.submit(3)


def test_two_stages_of_one_name_are_refused(app: Holdfast) -> None:
    flow = app.workflow("flow")

    @flow.stage
    async def copy(ctx: Context, _: None) -> None: ...

    with pytest.raises(DeclarationError, match="copy"):

        @flow.stage(name="copy")
        async def other(ctx: Context, _: None) -> None: ...


def test_two_undos_of_one_stage_are_refused(app: Holdfast) -> None:
    flow = app.workflow("flow")

    @flow.stage
    async def copy(ctx: Context, _: None) -> None: ...

    @copy.undo
    async def remove(ctx: Context, _: None) -> None: ...

    with pytest.raises(DeclarationError, match="copy"):

        @copy.undo
        async def remove_again(ctx: Context, _: None) -> None: ...


async def test_a_workflow_without_stages_cannot_be_opened(app: Holdfast) -> None:
    app.workflow("empty")
    with pytest.raises(DeclarationError, match="empty"):
        async with app:
            pass


def no_context() -> None: ...


def three(ctx: Context, one: int, two: int) -> None: ...


def needs_keyword(ctx: Context, *, needed: int) -> None: ...


def generator(ctx: Context) -> Any:
    yield 1


async def async_generator(ctx: Context) -> Any:
    yield 1


class Callable:
    def __call__(self, ctx: Context) -> None: ...

    def method(self, ctx: Context) -> str:
        return ctx.task_id


@pytest.mark.parametrize(
    "function",
    [
        *(no_context, three, needs_keyword, "send", 7),
        *(generator, async_generator, Callable, Callable(), partial(three, one=1, two=2), print),
    ],
    ids=lambda function: getattr(function, "__name__", type(function).__name__),
)
def test_a_function_of_another_shape_is_refused(app: Holdfast, function: Any) -> None:
    with pytest.raises(DeclarationError):
        app.task("odd")(function)
    with pytest.raises(DeclarationError):
        app.workflow("flow").stage(function)


def test_a_bound_method_is_a_function_too(app: Holdfast) -> None:
    task = app.task("bound")(Callable().method)
    assert task(context(task_id="task-3")) == "task-3"


def test_an_undo_of_another_shape_is_refused(app: Holdfast) -> None:
    flow = app.workflow("flow")

    @flow.stage
    async def copy(ctx: Context, _: None) -> None: ...

    with pytest.raises(DeclarationError):
        copy.undo(three)


def test_a_refused_task_leaves_its_name_free(app: Holdfast) -> None:
    with pytest.raises(DeclarationError):
        app.task("odd")(three)  # type: ignore[arg-type]

    @app.task("odd")
    async def odd(ctx: Context) -> None: ...

    assert odd.name == "odd"


def test_parameters_with_defaults_are_the_functions_own_business(app: Holdfast) -> None:
    @app.task("greet")
    def greet(ctx: Context, name: str, greeting: str = "hello", *, mark: str = "!") -> str:
        return f"{greeting} {name}{mark}"

    assert greet(context(), "ann") == "hello ann!"


@pytest.mark.parametrize("timeout", [0, -1, "0s", "soon", True, float("inf"), float("nan")])
def test_a_timeout_that_is_none_is_refused(app: Holdfast, timeout: Any) -> None:
    with pytest.raises((DeclarationError, InvalidInput)):

        @app.task("slow", timeout=timeout)
        async def slow(ctx: Context) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"max": 0},
        {"max": -1},
        {"max": 1.5},
        {"max": True},
        {"backoff": ()},
        {"backoff": "1m"},
        {"backoff": 60},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"backoff": ("soon",)},
        {"backoff": (-1,)},
    ],
    ids=repr,
)
def test_a_retry_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises((DeclarationError, InvalidInput)):
        Retry(**options)


@pytest.mark.parametrize(
    "name", ["", "1st", "-x", "a b", "a/b", "ä b", "ä/b", "a" * 201, "a\n", None, 7]
)
def test_names_of_types_stages_and_queues_keep_to_their_alphabet(app: Holdfast, name: Any) -> None:
    async def function(ctx: Context, _: None) -> None: ...

    with pytest.raises(InvalidName):
        app.task(name)(function)
    with pytest.raises(InvalidName):
        app.workflow(name)
    with pytest.raises(InvalidName):
        app.task("fine", queue=name)(function)
    if name:
        with pytest.raises(InvalidName):
            app.workflow("flow").stage(name=name)(function)


@pytest.mark.parametrize("name", ["a", "Mail.send-now_2", "a" * 200, "邮件.发送_2", "ä"])
def test_names_of_types_may_have_letters_digits_and_three_marks(app: Holdfast, name: str) -> None:
    @app.task(name, queue=name)
    async def function(ctx: Context) -> None: ...

    assert function.name == name


@pytest.mark.parametrize("name", ["", ":x", "a b", "ä b", "a|b", "a" * 201, "a\n", "a\x00", 7])
async def test_tenants_and_keys_keep_to_their_alphabet(name: Any) -> None:
    app = Holdfast("memory://")

    @app.task("note")
    async def note(ctx: Context) -> None: ...

    async with app:
        with pytest.raises(InvalidName, match="tenant"):
            await note.submit(tenant=name)
        with pytest.raises(InvalidName, match="key"):
            await note.submit(key=name)
        await note.submit(tenant="9/acme:eu@x.org+1=a-b_c", key="A" * 200)


def test_a_bad_choice_for_invalid_checkpoints_is_refused(app: Holdfast) -> None:
    with pytest.raises(DeclarationError, match="on_invalid"):
        app.workflow("flow", on_invalid="panic")


def test_a_type_that_cannot_be_read_from_json_is_refused(app: Holdfast) -> None:
    class Odd:
        def __init__(self, inner: Any) -> None: ...

    with pytest.raises(DeclarationError, match="Odd"):
        app.workflow("flow", payload=Odd)


def test_an_annotation_that_cannot_be_read_is_refused(app: Holdfast) -> None:
    def odd(ctx: Context, payload: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(DeclarationError, match="Nowhere"):
        app.task("odd")(odd)


def test_an_undo_may_leave_out_the_payload(app: Holdfast) -> None:
    flow = app.workflow("flow", payload=int)

    @flow.stage
    async def copy(ctx: Context, n: int) -> int:
        return n

    @copy.undo
    def remove(ctx: Context) -> None: ...

    assert flow.declared.stages[0].undo is not None
    assert not flow.declared.stages[0].undo.takes_payload


@pytest.mark.parametrize("retry", [5, 0, "3", Retry, {"max": 3}], ids=repr)
def test_a_retry_that_is_none_is_refused_where_it_is_written(app: Holdfast, retry: Any) -> None:
    async def function(ctx: Context, _: None) -> None: ...

    with pytest.raises(DeclarationError, match="retry"):
        app.task("odd", retry=retry)(function)
    with pytest.raises(DeclarationError, match="retry"):
        app.workflow("odd", retry=retry)
    with pytest.raises(DeclarationError, match="retry"):
        app.workflow("flow").stage(retry=retry)(function)


def test_an_option_that_a_workflow_does_not_have_is_refused_by_name(app: Holdfast) -> None:
    with pytest.raises(DeclarationError, match="hodl, qeue"):
        app.workflow("flow", hodl=True, qeue="x")  # type: ignore[call-overload]
    assert app.workflow("flow", hold=False, queue="x").name == "flow", "the name is still free"
