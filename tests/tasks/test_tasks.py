from __future__ import annotations

import itertools
import json
import multiprocessing
from pathlib import Path

import pytest

from bitcal_tts.tasks import TaskError, load_task, mathematics
from bitcal_tts.tasks.base import Item
from bitcal_tts.tasks.execute import run_code
from bitcal_tts.tasks.gsm_symbolic import problems, split_of
from bitcal_tts.tasks.listed import same_expression
from bitcal_tts.tasks.mathematics import Judge
from bitcal_tts.tasks.registry import restore_task


def write(path: Path, *lines: object) -> str:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(path)


def test_generated_problems_are_the_same_for_the_same_seed() -> None:
    task = load_task("gsm_symbolic")
    assert task.items(30, seed=1) == task.items(30, seed=1)
    assert task.items(20, seed=1) == task.items(30, seed=1)[:20]
    assert task.items(30, seed=1) != task.items(30, seed=2)


def test_splits_share_no_question_whatever_the_seeds() -> None:
    drawn = {s: {p.question for p in itertools.islice(problems(s, 0), 400)} for s in ("train", "calibration", "test")}
    for split, questions in drawn.items():
        assert len(questions) == 400
        assert {split_of(q) for q in questions} == {split}


def test_gold_answers_score() -> None:
    task = load_task("gsm_symbolic")
    for item in task.items(50, seed=0):
        assert task.correct(task.format.value(f"so #### {item.answer}"), item)
        assert not task.correct(task.format.value(f"#### {item.answer}1"), item)
        assert item.question in task.prompt(item)


def test_any_reasoning_gym_data_set_with_its_own_scorer() -> None:
    task = load_task("spell_backward")
    for item in task.items(5, seed=3):
        assert task.correct(task.format.value(f"thus #### {item.answer}\n"), item)
        assert not task.correct("zzz", item)
    assert task.items(5, seed=3) == task.items(5, seed=3)
    questions = [item.question for item in task.items(40, seed=3)]
    for other in (load_task("spell_backward", split="calibration").items(40, seed=3), task.items(40, seed=4)):
        assert len(set(questions) & {item.question for item in other}) < 10  # words recur, sequences do not
        assert [item.question for item in other][:-1] != questions[1:]


def test_gsm8k_from_a_local_file_takes_the_first_items(shared: Path) -> None:
    path = shared / "gsm8k" / "test.jsonl"
    task = load_task("gsm8k", data=str(path))
    items = task.items(1319, seed=9)
    first = json.loads(path.read_text().splitlines()[0])
    assert items[0].question == first["question"]
    assert items[0].answer == first["answer"].rpartition("####")[2].strip()
    assert all(task.correct(task.format.value(f"#### {item.answer}"), item) for item in items)
    with pytest.raises(TaskError, match="has 1319 items, 1320 were asked for"):
        task.items(1320, seed=0)


def test_jsonl(tmp_path: Path) -> None:
    data = write(
        tmp_path / "mine.jsonl", {"question": "1+1?", "answer": 2}, "", {"id": "b", "question": "x", "answer": "y"}
    )
    with pytest.raises(TaskError, match=r"line 3: the answer 'y' is no number, and another is: .*--answers marked_"):
        load_task("jsonl", data=data)
    with pytest.raises(TaskError, match="line 3: the answer 'y' is no number, and gsm8k answers are: mend it, or"):
        load_task("jsonl", data=data, answers="gsm8k")  # it could never be right
    with pytest.raises(
        TaskError, match=f"'stories' makes its own problems and reads no file: --task jsonl reads {data}"
    ):
        load_task("stories", data=data)
    task = load_task("jsonl", data=data, answers="marked_text")
    assert task.size == 2
    assert [(i.id, i.answer) for i in task.items(2, 0)] == [("mine-00000", "2"), ("b", "y")]
    assert task.describe()["data_sha256"]
    assert task.format.name == "marked_text"
    assert task.correct(task.format.value("so #### y"), task.items(2, 0)[1])
    numbers = write(tmp_path / "numbers.jsonl", {"question": "1+1?", "answer": "1,002"})
    assert load_task("jsonl", data=numbers).format.name == "gsm8k"
    (tmp_path / "bom.jsonl").write_bytes(b"\xef\xbb\xbf" + b'{"question": "q", "answer": 1}\r\n')
    assert load_task("jsonl", data=str(tmp_path / "bom.jsonl")).items(1, 0)[0].question == "q"
    (tmp_path / "lines.jsonl").write_text('{"question": "one\u2028two\x85three", "answer": 1}', encoding="utf-8")
    assert load_task("jsonl", data=str(tmp_path / "lines.jsonl")).items(1, 0)[0].question == "one\u2028two\x85three"
    with pytest.raises(TaskError, match="a file is one split"):
        load_task("jsonl", data=data, split="calibration")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", r"mine\.jsonl, line 2: not JSON"),
        ("[1]", r"mine\.jsonl, line 2: expected a JSON object"),
        ('{"question": "q"}', r"mine\.jsonl, line 2: the object has no 'answer'"),
        ('{"answer": "q"}', r"mine\.jsonl, line 2: the object has no 'question'"),
        ('{"question": "q", "answer": true}', r"mine\.jsonl, line 2: the object has no 'answer'"),
        ('{"question": " ", "answer": 1}', r"mine\.jsonl, line 2: 'question' is empty"),
        ('{"question": "q", "answer": NaN}', r"mine\.jsonl, line 2: 'answer' is empty"),
        ("[" * 100_000, r"mine\.jsonl, line 2: nested too deeply"),
        ('{"question": "a\\ud800b", "answer": "1"}', r"line 2: holds half a surrogate pair"),
        ('{"question": null, "answer": "1"}', r"line 2: the object has no 'question'"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    data = write(tmp_path / "mine.jsonl", {"question": "q", "answer": "1"}, line)
    with pytest.raises(TaskError, match=message):
        load_task("jsonl", data=data)


def test_nought_is_an_answer(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.jsonl", {"question": "a", "answer": 0}, {"question": "b", "answer": 2})
    for answers in (None, "gsm8k"):
        task = load_task("jsonl", data=data, answers=answers)
        assert [item.answer for item in task.items(2, 0)] == ["0", "2"]
        assert task.correct("0", task.items(1, 0)[0])


def test_answers_may_be_left_out_where_it_is_said_how_they_are_written(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.jsonl", {"question": "a"}, {"question": "b"})
    task = load_task("jsonl", data=data, answers="gsm8k")
    assert [item.answer for item in task.items(2, 0)] == ["", ""]
    assert not task.correct("7", task.items(1, 0)[0])
    with pytest.raises(TaskError, match="line 1: the object has no 'answer'.*--answers says how they are written"):
        load_task("jsonl", data=data)
    data = write(tmp_path / "some.jsonl", {"question": "a", "answer": 1}, {"question": "b"})
    with pytest.raises(TaskError, match="line 2: the object has no 'answer', which 1 others have"):
        load_task("jsonl", data=data, answers="gsm8k")


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b'{"question": "caf\xe9?", "answer": 1}')
    with pytest.raises(TaskError, match="latin.jsonl, line 1: not UTF-8"):
        load_task("jsonl", data=str(tmp_path / "latin.jsonl"))
    with pytest.raises(TaskError, match="cannot read nowhere.jsonl"):
        load_task("jsonl", data="nowhere.jsonl")
    with pytest.raises(TaskError, match="holds no items"):
        load_task("jsonl", data=write(tmp_path / "empty.jsonl", ""))
    twice = {"id": "a", "question": "q", "answer": "1"}
    with pytest.raises(TaskError, match="same 'id'"):
        load_task("jsonl", data=write(tmp_path / "twice.jsonl", twice, twice))
    with pytest.raises(TaskError, match="needs --data"):
        load_task("jsonl")


def test_unknown_names_list_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(
        TaskError, match=r"unknown task 'gsm9k' \(did you mean gsm8k\?\); available: gsm_symbolic, stories"
    ):
        load_task("gsm9k")
    with pytest.raises(TaskError, match="no split 'dev'; available: train, calibration, test"):
        load_task("gsm_symbolic", split="dev")
    with pytest.raises(TaskError, match="unknown answer format"):
        load_task(answers="roman")
    with pytest.raises(TaskError, match="has no {question}"):
        load_task(template=write(tmp_path / "t.txt", "Solve it."))


def test_fewer_than_one_item_is_refused() -> None:
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        load_task().items(0, seed=0)


def test_math_knows_equal_mathematics(tmp_path: Path) -> None:
    halves, lines = {"problem": "half?", "answer": "\\frac{1}{2}"}, {"problem": "x?", "answer": "x+1"}
    data = write(tmp_path / "m.jsonl", halves, lines)
    task = load_task("math", data=data)
    half, line = task.items(2, 0)
    assert task.format.name == "boxed" and "\\boxed{}" in task.prompt(half)
    assert task.correct("0.5", half) and task.correct("\\dfrac12", half) and not task.correct("2", half)
    assert task.correct("1 + x", line) and not task.correct("x", line) and not task.correct(None, line)
    again = restore_task("math", "boxed")
    assert again.correct("1+x", line)


@pytest.mark.parametrize(
    ("gold", "answer", "equal"),
    [
        (r"90^\circ", "90", True), ("4210_{5}", "4210_5", True), ("2^{10}", "1024", True),
        ("10", r"\binom{5}{2}", True),
        ("3", "x = 3", True), ("1,250", "1250", True), ("5", r"5 \text{ cm}", True), ("f(x) = 3", "3", True),
        ("x > 5", "x < 5", False), ("x > 5", "5", False), (r"(2,\infty)", r"[2,\infty)", False),
        ("4", r"x = 3 \text{ or } x = 4", False), ("5", "6", False), ("x = 3", "y = 4", False),
    ],
)  # fmt: skip
def test_expressions_are_the_same_where_they_say_the_same(gold: str, answer: str, equal: bool) -> None:
    assert same_expression(answer, Item("i", "q", gold)) is equal


def test_mathematics_that_never_ends_is_different() -> None:
    judge = Judge(seconds=2.0)
    assert judge.same("0.5", r"\frac{1}{2}")
    assert not judge.same("42", "9^{9^{9}}")
    assert judge.same("x + 1", "1 + x")  # a child that was killed is followed by another
    assert not judge.same("42", "\\frac{{")
    judge.close()


def test_choices_are_listed_and_lettered(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"question": "Which?", "choices": ["red", "blue"], "answer": "B"},
        {"question": "Which?", "choices": ["red", "blue"], "answer": "blue"},
        {"question": "Which?", "choices": ["red", "blue"], "answer": 1},
    ]
    task = load_task("choice", data=write(tmp_path / "c.jsonl", *rows))
    items = task.items(3, 0)
    assert [item.answer for item in items] == ["B", "B", "B"]
    assert items[0].question == "Which?\nA) red\nB) blue"
    assert task.correct(task.format.value("#### (b)"), items[0])
    wrong: list[dict[str, object]] = [{"choices": ["red"]}, {"choices": "red"}, {"answer": "green"}]
    for bad in wrong:
        with pytest.raises(TaskError, match="line 1"):
            load_task("choice", data=write(tmp_path / "d.jsonl", {**rows[0], **bad}))


def test_code_is_compared_and_only_run_where_asked(tmp_path: Path) -> None:
    data = write(tmp_path / "k.jsonl", {"question": "print 6 * 7", "answer": "42"})
    plain, running = load_task("code", data=data), load_task("code", data=data, execute=True)
    (item,) = plain.items(1, 0)
    assert not plain.correct("print(6 * 7)", item) and plain.correct("42", item)
    assert running.correct("print(6 * 7)", item) and running.identity["execute"] is True
    assert restore_task("code", "code", execute=True).correct("print(42)", item)
    with pytest.raises(TaskError, match="only the task 'code' executes"):
        load_task("gsm_symbolic", execute=True)
    with pytest.raises(TaskError, match="needs --data FILE"):
        load_task("code")


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "x = bytearray(2**31)",
        "open('f', 'wb').write(b'x' * 10**7)",
        "print('x' * 10**6)",
        "while True: print('x' * 10**6)",
        "raise SystemExit(3)",
        "import os; print(os.environ['PATH'])",
        "\0",
    ],
)
def test_code_that_misbehaves_gives_nothing(code: str) -> None:
    assert run_code(code) is None


def test_codeio_predicts_outputs() -> None:
    task = load_task("codeio")
    (item,) = task.items(1, 0)
    assert task.format.name == "code"
    assert task.correct(item.answer, item) and not task.correct('"no"', item)


def test_worked_solutions_are_read_as_gsm8k_has_them(tmp_path: Path) -> None:
    """A line of GSM8K in a file of one's own: the gold answer is what stands after the marker."""
    data = write(
        tmp_path / "worked.jsonl", {"question": "3+4?", "answer": "3+4=7\n#### 7"}, {"question": "q", "answer": 5}
    )
    task = load_task("jsonl", data=data)
    assert task.format.name == "gsm8k"
    assert [item.answer for item in task.items(2, 0)] == ["7", "5"]


def test_the_prompt_asks_for_the_format_that_was_named(tmp_path: Path) -> None:
    data = write(tmp_path / "mine.jsonl", {"question": "1/2 + 1/3?", "answer": "5/6"})
    assert "\\boxed{}" in load_task("jsonl", data=data, answers="boxed").template
    assert "####" in load_task("jsonl", data=data).template


def test_a_data_set_of_reasoning_gym_may_be_made_easier() -> None:
    task = load_task("chain_sum:min_terms=2,max_terms=2,min_digits=1,max_digits=1")
    items = task.items(20, seed=1)
    assert all(item.question.count("+") + item.question.count("-") == 1 for item in items)
    assert task.correct(items[0].answer, items[0]) and not task.correct("1000", items[0])
    assert restore_task(task.name, "marked_text").correct(items[0].answer, items[0])
    for name, message in (
        ("chain_sum:max_terms", "KEY=VALUE, as in chain_sum:max_terms=2"),
        ("chain_sum:most=2", "cannot be had: .*most"),
        ("chain_sum:min_terms=9", "cannot be had"),
        ("no_such:x=1", "unknown task"),
    ):
        with pytest.raises(TaskError, match=message):
            load_task(name)


def test_a_copy_of_the_process_compares_by_itself() -> None:
    """What a fork inherits of the comparing child is not its own: it would wait for nothing, and end its parent's."""
    assert mathematics.same("1/2", "0.5")
    copy = multiprocessing.get_context("fork").Process(target=_compare_and_exit)
    copy.start()
    copy.join()
    assert copy.exitcode == 0
    assert mathematics.same("3/6", "0.5")


def _compare_and_exit() -> None:
    raise SystemExit(0 if mathematics.same("2/4", "0.5") else 1)
