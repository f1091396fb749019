"""Delays per carrier and day, in every weather: a Spark Structured Streaming job over two minilog topics.

Reads flights and weather (typed topics), joins each flight with the weather of its airport and hour, aggregates per
carrier and window, and appends each closed window to a third topic. Plain DataFrames and `format("minilog")`; nothing
here knows how the log works. Run it as it is, or with spark-submit:

    python jobs/delays.py --bootstrap-servers 127.0.0.1:9092 --checkpoint /tmp/delays-checkpoint

Append mode writes a window once, when the watermark of both inputs has passed its end: the newest windows stay open
until later events arrive on both topics. SIGTERM and SIGINT stop the query; started again on its checkpoint it goes on
where it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import threading

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

# What is read of the topics; their other columns do not travel.
FLIGHTS_COLUMNS = "time,carrier,origin,dep_delay"
WEATHER_COLUMNS = "hour,origin,precip"


@dataclasses.dataclass(frozen=True, slots=True)
class DelaysOptions:
    """Where the job reads and writes, and its windows; intervals as Spark spells them."""

    bootstrap_servers: str
    checkpoint: str
    flights_topic: str = "flights"
    weather_topic: str = "weather"
    delays_topic: str = "delays"
    window: str = "1 day"
    watermark: str = "14 days"
    trigger: str = "1 second"


def delays_of(flights: DataFrame, weather: DataFrame, options: DelaysOptions) -> DataFrame:
    """`key` and `value` per carrier and window, from frames with FLIGHTS_COLUMNS and WEATHER_COLUMNS.

    `rain_*` count only the flights in whose hour it rained at their airport. A flight without a departure delay never
    left: it counts as a flight, not as a departure.
    """
    flown = (
        flights.withColumnRenamed("origin", "airport")
        .withColumn("flight_hour", f.expr("unix_seconds(time) div 3600"))
        .withWatermark("time", options.watermark)
    )
    measured = weather.withColumn("weather_hour", f.expr("unix_seconds(hour) div 3600")).withWatermark(
        "hour", options.watermark
    )
    # The equalities find the one measurement by key, where the range alone would look at a year of them per flight;
    # the range of event times tells Spark when to forget.
    same_airport_and_hour = f.expr(
        "origin = airport AND weather_hour = flight_hour AND time >= hour AND time < hour + interval 1 hour"
    )
    in_rain = f.col("precip") > 0
    windows = (
        flown.join(measured, same_airport_and_hour, "inner")
        .groupBy("carrier", f.window("time", options.window))
        .agg(
            f.count(f.lit(1)).alias("flights"),
            f.count("dep_delay").alias("departures"),
            f.sum("dep_delay").alias("delay_sum"),
            f.avg("dep_delay").alias("delay_avg"),
            f.count_if(in_rain).alias("rain_flights"),
            f.sum(f.when(in_rain, f.col("dep_delay"))).alias("rain_delay_sum"),
        )
    )
    start = f.date_format(f.col("window.start"), "yyyy-MM-dd'T'HH:mm:ss'Z'")
    totals = ("flights", "departures", "delay_sum", "delay_avg", "rain_flights", "rain_delay_sum")
    return windows.select(
        f.concat_ws("|", "carrier", start).alias("key"),
        f.to_json(f.struct("carrier", start.alias("window_start"), *totals)).alias("value"),
    )


def read_topic(spark: SparkSession, options: DelaysOptions, topic: str, columns: str) -> DataFrame:
    """Columns of a typed topic from its first row on; a restart goes on from the checkpoint."""
    return (
        spark.readStream.format("minilog")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("subscribe", topic)
        .option("columns", columns)
        .option("startingOffsets", "earliest")
        .load()
    )


def build_query(spark: SparkSession, options: DelaysOptions) -> StreamingQuery:
    """Start the query; the caller waits for it and stops it."""
    flights = read_topic(spark, options, options.flights_topic, FLIGHTS_COLUMNS)
    weather = read_topic(spark, options, options.weather_topic, WEATHER_COLUMNS)
    return (
        delays_of(flights, weather, options)
        .writeStream.format("minilog")
        .queryName("delays")
        .outputMode("append")
        .option("bootstrap.servers", options.bootstrap_servers)
        .option("topic", options.delays_topic)
        .option("checkpointLocation", options.checkpoint)
        .trigger(processingTime=options.trigger)
        .start()
    )


def create_session() -> SparkSession:
    """A session for a small cluster; spark-submit's own settings (master, memory) win."""
    builder = SparkSession.builder.appName("minilog-delays")
    settings = {
        # Two partitions of state are plenty for some thousands of rows, and each costs a file per batch.
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def parse_arguments(arguments: list[str] | None = None) -> DelaysOptions:
    """The options from the command line; argparse ends the program where one is missing."""
    parser = argparse.ArgumentParser(description="Flight delays per carrier and window, in every weather.")
    for field in dataclasses.fields(DelaysOptions):
        required = field.default is dataclasses.MISSING
        default = None if required else field.default
        parser.add_argument(f"--{field.name.replace('_', '-')}", required=required, default=default)
    return DelaysOptions(**vars(parser.parse_args(arguments)))


def main() -> None:
    """Run until SIGTERM or SIGINT, or until the query fails."""
    options = parse_arguments()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    spark = create_session()
    query = build_query(spark, options)
    while not stop.is_set() and not query.awaitTermination(1):
        pass
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
