"""`make bench`: every benchmark once, and their figures in docs/benchmarks.md.

entry      a command, and what is wanted of its figures; entries: all of them
said       what a command's output says: a table, and its last line's figures
machine    where and when it was: processor, memory, commit, how busy others kept it
child      one command as a child process with a time limit
results    what each one gave last, kept beside the document
document   the blocks of the document that are written here; shown: what stands in them
book       document and results together; run: one after the other
command    what may be asked for in words
"""
