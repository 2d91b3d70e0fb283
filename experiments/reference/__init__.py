"""The pages under docs/reference/, made from the code that they describe."""
