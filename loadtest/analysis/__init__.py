"""What a log of traffic says of prefix caches, without a fleet.

In reading order: `log` and `forms` (lines to requests), `writing` (texts to symbols), `tree` (who
shares what with whom), `recency` (hits of every cache size), `clairvoyant` (what no cache can
beat), `survey` (one pass), `checkup` (the doctor), `fleets` (workers and rules), `findings` (the
values), `advice`, `shown`, `pictures` and `page` (how they are told), `command`.
"""
