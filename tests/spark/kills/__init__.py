"""Exactly once with the real Spark: a streaming copy whose driver, workers and brokers are killed while it runs.

    python -m tests.spark.kills --times 20 --seed 7      so many kills, and a table
    python -m tests.spark.kills --minutes 30             steady input, a kill every 20 s, memory and open files

`driver` is the program that is killed and started again, `copying` keeps it running, `victims` says who is killed and
what is mended after it, `judging` what may stand in the topic in the end, `run` is one run of it all.
"""
