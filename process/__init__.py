"""What every process of ours does in one way, whatever it is for.

outlet    log lines leave it, and whoever logs waits for nobody
lines     how a log line tells times and values
threads   a pool whose threads are there before they are needed
"""
