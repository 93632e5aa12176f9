"""Prompts by seed with one thing wrong, and what is wrong with them.

words     sentences, system prompts, tools and talks that no two seeds share
values    times, ids and numbers as programs write them, in many forms
planted   a case per kind of fault: what is sent before, and what is judged
fleet     cases in which something happens to workers, or to the tenant
real      the same with recorded sessions' texts
"""
