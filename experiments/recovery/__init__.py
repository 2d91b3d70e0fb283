"""Fourteen kinds of injected fault: does a run come back from each as if nothing had been?"""
