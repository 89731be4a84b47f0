"""What people have: files of questions and responses, read one record at a time and nothing trusted."""

from bitcal_tts.logs.files import Fault, LogError, read_records
from bitcal_tts.logs.texts import Columns, LoggedText, read_texts

__all__ = ["Columns", "Fault", "LogError", "LoggedText", "read_records", "read_texts"]
