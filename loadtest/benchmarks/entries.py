"""Every benchmark, in the order in which they run.

Nothing is wanted of a figure that is not wanted elsewhere: behind a bound stands where.
"""

from __future__ import annotations

from loadtest.benchmarks.entry import PICTURE, Bound, Entry

_NONE = Bound("=", 0)
_LEAST = {  # benchmarks.md: what a share of memory's rate and ratios should be
    "decode_bandwidth_share": Bound(">=", 0.70),
    "decode_over_sdpa": Bound(">=", 4),
    "prefill_over_sdpa": Bound(">=", 3),
    "cascade_over_plain": Bound(">=", 4),
}


def _loadtest(*words: str) -> tuple[str, ...]:
    return ("loadtest", *words)


_KERNELS = (
    Entry(
        "kernels",
        ("kernels.bench", "attention"),
        "How near attention comes to what memory and torch's products allow.",
        _LEAST,
    ),
    Entry(
        "dflash",
        _loadtest("dflash", "--longest", "16384", "--picture", PICTURE),
        "What decoding over a part of a long context saves, and what it changes.",
        {
            "speedup_16k": Bound(">=", 3),  # benchmarks.md
            "step_speedup": None,
            "kl": Bound("<=", 0.01),  # decision 28
            "kl_8bit": None,
            "kv_ratio": None,
        },
        picture="dflash.svg",
    ),
)
_WORKERS = (
    Entry(
        "caches",
        _loadtest("caches"),
        "What the prefix caches cost by themselves.",
        {"match_us": None, "insert_us": None, "zero_hit_cost": None},
    ),
    Entry(
        "shared-prefix",
        _loadtest("shared-prefix", "--prefixes", "3"),
        "What the second request behind a long prefix computes, and how long it waits.",
        {  # prefix-cache.md: every token of it, and every whole page of 16
            "radix_cached": Bound("=", 1500),
            "block_cached": Bound("=", 1488),
            "warm_over_cold": None,
        },
    ),
    Entry(
        "fan-out",
        _loadtest("fan-out"),
        "How long 32 requests that share a prefix take, sent at once to a cold worker.",
        {"pando_wall_s": None, "pando_cpu_s": None},
    ),
    Entry(
        "engines",
        _loadtest("engines", "--engines", "pando,transformers"),
        "Tokens a second by batch, and a shared prefix, beside transformers on the same weights.",
        {
            "over_transformers": None,
            "shared_over_best_peer": None,
            "mismatches": _NONE,  # ARCHITECTURE.md: the same output
        },
    ),
    Entry(
        "prompt-logprobs",
        _loadtest("prompt-logprobs"),
        "What scoring a prompt a second time takes.",
        {"cold_over_warm": None, "mismatches": _NONE},  # ARCHITECTURE.md, what always holds, 2
    ),
    Entry(
        "masks",
        _loadtest("masks"),
        "What a grammar costs a token, whether all that it lets through is valid, and what a "
        "hostile one does to others.",
        {"mean_us": None, "p99_us": None, "invalid": _NONE, "hostile_p99": None},
    ),
    Entry(
        "program",
        _loadtest("program", "--rounds", "2"),
        "A program in one request against its steps as calls.",
        {
            "wall_over_calls": None,
            "computed_over_calls": None,
            "computed_over_no_cache": None,
            "mismatches": _NONE,
        },
    ),
    Entry(
        "rerank",
        _loadtest("rerank", "--queries", "2"),
        "What a query that is computed once for its 32 documents saves.",
        {"speedup": None, "max_abs_diff": _NONE},
    ),
    Entry(
        "scheduler",
        _loadtest("scheduler", "--picture", PICTURE),
        "What the order of admission is worth, and whom it makes wait.",
        {
            "hit_over_best": None,
            "fcfs_hit_over_best": None,
            # scheduling.md: strangers wait less than under first come first served
            "cold_p99_over_fcfs": Bound("<", 1),
            "decision_over_step": None,
        },
        picture="ttft-over-queue.svg",
    ),
    Entry(
        "isolation",
        _loadtest("isolation", "--rounds", "200"),
        "What tenants on one worker can do to one another: evict, slow down, find out.",
        {  # security.md: no flood takes another's cached pages, no namespace meets another
            "victim_loss": _NONE,
            "cross_hits": _NONE,
            "auc": None,
            "auc_insider": None,
            "lru_victim_loss": None,
        },
    ),
)
_FLEETS = (
    Entry(
        "routing",
        _loadtest("routing", "--quick"),
        "How near a fleet comes to one big cache, and how evenly it works.",
        {
            "hit_over_pooled": None,
            "imbalance": None,
            "agents_hit_over_pooled": None,
            "gateways8_loss": None,
            "join_dip": None,
        },
    ),
    Entry(
        "failover",
        _loadtest("failover", "--rounds", "5"),
        "What clients see of workers that are killed under live streams.",
        {  # README.md: the stream goes on, with the same tokens
            "client_errors": _NONE,
            "token_mismatches": _NONE,
            "gap_p99_s": None,
        },
    ),
    Entry(
        "tenants",
        _loadtest("tenants"),
        "Fair shares, a noisy neighbour, one limit over four gateways.",
        {"jain": None, "victim_loss": None, "quota_overshoot": _NONE},  # tenants.md: shared limits
    ),
    Entry(
        "overhead",
        _loadtest("overhead", "--routers", "pando,direct"),
        "What the gateway adds to a request by itself.",
        {"decision_p99_ms": None, "added_p50_ms": None},
    ),
    Entry(
        "page",
        ("tests.gateway.ui.cost",),
        "What the page takes of the gateway's CPU.",
        {"life_us": None, "explain_us": None, "sample_us": None},
    ),
    Entry(
        "doctor",
        _loadtest("doctor"),
        "Whether what is wrong with a prompt is named right, and what asking costs.",
        {
            "named_right": Bound(">=", 0.95),  # decision 27: one of twenty seeded faults
            "false_alarms": _NONE,  # doctor.md
            "known_us": None,
            "examined_us": None,
        },
    ),
    Entry(
        "ladder",
        _loadtest("ladder", "--quick"),
        "What radix, dflash and grouping by prefix add, one upon the other; little of each.",
        {"radix_hit": None, "regrouped_hit": None, "dflash_memory_ratio": Bound("<", 1)},
    ),
    Entry(
        "scenarios",
        _loadtest("scenarios", "--quick"),
        "Which cache for which traffic; little of each.",
        {"agent_radix_over_off": Bound(">", 1), "agent_radix_over_block": None},
    ),
)
_LONG = (
    Entry(
        "ladder-full",
        _loadtest("ladder", "--picture", PICTURE),
        "What radix, dflash and grouping by prefix add, one upon the other.",
        {
            "radix_over_off": Bound(">", 1),
            "dflash_memory_ratio": Bound("<", 1),
            "regrouped_over_radix": Bound(">", 1),
            "radix_hit": None,
            "regrouped_hit": None,
        },
        1800.0,
        picture="ladder.svg",
        is_long=True,
    ),
    Entry(
        "scenarios-full",
        _loadtest("scenarios"),
        "Which cache for which traffic.",
        {
            "agent_radix_over_off": Bound(">", 1),
            "agent_radix_over_block": None,
            "short_off_over_radix": None,
        },
        1800.0,
        is_long=True,
    ),
)
ENTRIES = (*_KERNELS, *_WORKERS, *_FLEETS, *_LONG)
