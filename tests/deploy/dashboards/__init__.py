"""The chart's dashboards and alerts over a real fleet and a real Prometheus, and as pictures.

__main__    start all, load it, read it, draw it        make dashboards (five minutes)
monitored   the scrape configuration and rules that the chart's monitors stand for
server      a Prometheus of our own, and what Grafana asks it
board       a dashboard's panels, and what each of them shows
fleet       gateway and workers under the names that the chart gives them
load        clients that do a little of everything
drawing     panels in their places
"""
