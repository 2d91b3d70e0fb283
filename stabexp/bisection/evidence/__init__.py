"""What each question of the decision tree looks at, and what counts as yes.

Not knowing is an answer of its own. A replay that could not be run shows nothing, and a variable
whose doses were never tried is not ruled out: the first stops the tree, the second lowers what the
verdict may claim.
"""
