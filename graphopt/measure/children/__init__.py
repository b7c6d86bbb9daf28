"""Child processes that measure: they may crash, hang or run out of memory."""
