"""Problems: items, prompts, gold answers, scoring."""

from bitcal_tts.tasks.base import Item, Task, TaskError
from bitcal_tts.tasks.registry import TASKS, load_task

__all__ = ["TASKS", "Item", "Task", "TaskError", "load_task"]
