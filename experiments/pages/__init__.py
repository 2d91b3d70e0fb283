"""Pages of the documentation that are run before they are written.

Every output, curve and verdict on them is made by what the page itself says.
"""
