"""``graphopt fuzz`` and ``graphopt corpus verify``: are results equal under any legal decisions?"""
