from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bitcal_tts.engines.cache import survivors


@given(st.integers(0, 40), st.data())
def test_survivors_keep_the_right_rows_and_move_few(count: int, data: st.DataObject) -> None:
    leaving = data.draw(st.sets(st.integers(0, max(count - 1, 0)), max_size=count)) if count else set()
    order = survivors(count, leaving)
    assert sorted(order) == [row for row in range(count) if row not in leaving]
    moved = [row for to, row in enumerate(order) if to != row]
    assert len(moved) <= len(leaving)
    assert all(row >= len(order) for row in moved)  # only rows from the back fill holes: no move overwrites another
