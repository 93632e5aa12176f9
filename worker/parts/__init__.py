"""The parts of a chat's answer: text, reasoning, and calls of tools.

formats    how a family of models writes calls: one member each
splitter   the text, as it comes, told apart
language   what a choice may say, where calls or a constraint restrict it, around its reasoning
telling    tools for templates that know none
plan       what of it a request needs
"""
