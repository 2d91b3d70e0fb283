"""Other people's trainers drive a run through `Run.begin`, `batch`, `log` and `end_step`.

One module per framework, imported only by who uses that framework.
"""
