"""Tests share worlds and facts that are written down; what they assert is shown in full."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("bisection.scripted_bisect")
