"""What the Spark connector does."""

from __future__ import annotations

from tests.rules import Mutant, Rule, Section
from tests.simulation.mutants import transactions

SECTIONS = (
    Section(
        "1. Facts about Spark",
        (),
        (
            Rule("SPF.1", "registered by its name alone, and by a light import"),
            Rule(
                "SPF.2", "option keys in any case; what Spark adds (`checkpointlocation`, `queryname`) is passed over"
            ),
            Rule("SPF.3", "a refusal is the first line of Spark's error, without a traceback; a bug has one"),
            Rule("SPF.4", '`load("t")`, `save("t")`, `start("t")` are refused'),
            Rule(
                "SPF.5",
                "a table of the catalog has its options from the metadata of its columns, and keeps the columns of "
                "its creation",
            ),
            Rule(
                "SPF.6",
                "options of one read win; one made with columns has none; what cannot be read is refused at CREATE "
                "TABLE",
            ),
            Rule("SPF.7", "nothing is inserted into a table: an `INSERT` shows the options of the table that is read"),
            Rule("SPF.8", "a view shows what was there at its first action"),
            Rule("SPF.9", "source options are checked at `load()`, and where `.schema(…)` went around that"),
            Rule("SPF.10", "sink options of a stream are checked in its first micro-batch"),
            Rule("SPF.11", "Arrow batches of exact column order and types, all nullable, of a bounded size"),
            Rule("SPF.12", "all limits combined in `latestOffset`; Once passes none of them"),
            Rule(
                "SPF.13",
                "the initial offset is asked for twice, and again at a replay of batch 0: cached, and in `__from`",
            ),
            Rule("SPF.14", "offsets as JSON text: keys sorted, an unchanged `start` as it came"),
            Rule("SPF.15", "an idle query waits at the brokers, bounded; the report is from memory"),
            Rule(
                "SPF.16",
                "nothing depends on `commit(end)` or `stop()`; the start of `latestOffset` is a finished batch",
            ),
            Rule("SPF.17", "`partitions` is pure"),
            Rule("SPF.18", "observers: numbers are those of the topics, queries do not depend on it"),
            Rule("SPF.19", "`minilog.config.file`: below options, in no plan, refused where others can read secrets"),
            Rule(
                "SPF.20",
                "secrets are no options, and never in a table; Kafka's names of security; unknown options without "
                "their value",
            ),
            Rule(
                "SPF.21",
                "a secured cluster: by file and by environment, with just the rules of a job; who may not is told",
            ),
            Rule("SPF.22", "no password in event log, UI, plans, checkpoints, progress, processes, errors, logs"),
            Rule(
                "SPF.23",
                "`delegationTokens`: tasks log in by a token, which is renewed at half of its life and replaced at "
                "its maximum; in nothing that Spark leaves",
            ),
            Rule("SPF.24", "progress: `latestOffset`, numInputRows, numOutputRows"),
            Rule("SPF.25", "filters are never pushed"),
            Rule(
                "SPF.26",
                "the sink takes query, batch and run from local properties; survives restarts; a replayed batch may "
                "have other tasks",
            ),
            Rule(
                "SPF.27",
                "in foreachBatch they name no write: each has its own name, and a second one under a name is refused",
            ),
            Rule("SPF.28", "the writer's own id is its tasks'; `commit` and `abort` know messages only"),
            Rule("SPF.29", "`abort` gets None for failed tasks, and may follow a commit"),
            Rule(
                "SPF.30", "a query that is stopped in a batch: the driver finds the attempt by its mark, and aborts it"
            ),
            Rule(
                "SPF.31",
                "`saveAsTable`, `writeTo`, `toTable` leave a table that cannot be read, and what to do is said",
            ),
            Rule("SPF.32", "empty partitions call nobody"),
            Rule("SPF.33", "the input is always drained, so that state is whole"),
            Rule(
                "SPF.34",
                "Arrow as the session has it (large types, zone) is cast; cut to batch.size, and too large only above "
                "max.message.bytes",
            ),
            Rule("SPF.35", "update mode, errorIfExists and ignore are refused by Spark"),
            Rule("SPF.36", "no gRPC before the fork, clients live between tasks, one that failed is closed"),
        ),
    ),
    Section(
        "2. Source options",
        (),
        (
            Rule("SPO.1", "`bootstrap.servers` by three names; required"),
            Rule(
                "SPO.2",
                "exactly one of `subscribe`, `subscribePattern` (Java's), `assign`; internal topics never match",
            ),
            Rule("SPO.3", "`startingOffsets`: words, JSON per topic and partition"),
            Rule("SPO.4", "timestamps win, in order, and are exact; the strategy where none is so young"),
            Rule("SPO.5", "ends: batch only, all three refused in a stream"),
            Rule("SPO.6", "`maxOffsetsPerTrigger` in proportion, no starving, no overflow"),
            Rule("SPO.7", "`minOffsetsPerTrigger`, `maxTriggerDelay`; min > max refused"),
            Rule("SPO.8", "`maxBytesPerTrigger`"),
            Rule("SPO.9", "`minPartitions`, `maxRecordsPerPartition`: no offset lost or read twice"),
            Rule("SPO.10", "`failOnDataLoss=false`: warn, skip, no duplicate, no failure"),
            Rule("SPO.11", "`includeHeaders`"),
            Rule("SPO.12", "`fetchOffset.*`"),
            Rule("SPO.13", "`groupIdPrefix`, `minilog.group.id`"),
            Rule("SPO.14", "`minilog.isolation.level`"),
            Rule("SPO.15", "`minilog.*`: any client setting; those owned are refused by name"),
            Rule("SPO.16", "unknown options: the nearest name; numbers below 1"),
            Rule("SPO.17", "each refusal is one sentence with option, value and remedy"),
            Rule("SPO.18", "a start counts for a new query only"),
            Rule("SPO.19", "new partitions and topics start at earliest, also while it runs"),
            Rule("SPO.20", "the schema, all nullable; headers null where there are none"),
            Rule("SPO.21", "the offset's form; never `{}`; Kafka's is accepted"),
            Rule("SPO.22", "every option is in the guide"),
        ),
    ),
    Section(
        "2.1 Topics with a schema",
        (),
        (
            Rule("SPT.1", "the columns, types and nullability of the topic"),
            Rule("SPT.2", "`columns`: only they travel; `metadata`; `view=kafka`"),
            Rule(
                "SPT.3",
                "`view=latest`: the newest row of each key, as Spark's own window gives it, as of a time, by parts of "
                "the keys; deletions and rows without a key leave",
            ),
            Rule(
                "SPT.4",
                "... in a table of the catalog; a stream, and options that cut a partition, are refused; retention "
                "below it is loss",
            ),
            Rule(
                "SPT.5",
                "... joined to a stream: each micro-batch has the newest table, whichever way it was made; a cleaning "
                "ends no query; an end as of a place stays",
            ),
            Rule("SPT.6", "`where` gives what Spark's own gives, nulls and NaN too"),
            Rule("SPT.7", "`.schema(…)` is a projection by name, in the same types or wider ones"),
            Rule("SPT.8", "several topics have the same columns; with and without a schema do not mix"),
            Rule(
                "SPT.9",
                "a stream goes on with its columns while a schema evolves; the version is in its checkpoint, and old "
                "ones go on",
            ),
            Rule("SPT.10", "`onSchemaChange=fail` ends it"),
            Rule("SPT.11", "what its columns cannot hold ends it"),
            Rule("SPT.12", "tasks of several queries share a consumer"),
        ),
    ),
    Section(
        "3. Data loss",
        (),
        (
            Rule("SPL.1", "a topic deleted, or created again, between runs and while it runs"),
            Rule(
                "SPL.2", "a deleted topic leaves the offsets, once it is told and the controller says that it is gone"
            ),
            Rule("SPL.3", "with fewer partitions"),
            Rule("SPL.4", "aged out or trimmed: topic, partition, both offsets"),
            Rule("SPL.5", "a new partition or topic that begins above offset 0"),
            Rule("SPL.6", "an end below a start, or below one heard of: asked again, reported, never moved back"),
            Rule("SPL.7", "markers and aborted records are gaps; a batch may end on one; no time-out is waited out"),
            Rule("SPL.8", "transient failures are not shown"),
        ),
    ),
    Section(
        "4. Triggers, and several sources",
        (),
        (
            Rule("SPG.1", "AvailableNow: what was there, within limits; over a restart in the middle"),
            Rule("SPG.2", "partitions that vanish meanwhile are named"),
            Rule("SPG.3", "Once: all, ignoring limits; over a restart in the middle"),
            Rule(
                "SPG.4",
                "two limited sources in one union",
                seldom="Spark's operators: a change of minilog seldom meets them",
            ),
            Rule("SPG.5", "a self-join", seldom="Spark's operators: a change of minilog seldom meets them"),
            Rule("SPG.6", "a stream-stream join", seldom="Spark's operators: a change of minilog seldom meets them"),
            Rule("SPG.7", "stateful operators"),
        ),
    ),
    Section(
        "5. Batch",
        (),
        (
            Rule("SPB.1", "earliest to latest; `latest` is fixed at the first action"),
            Rule("SPB.2", "start and end name the same partitions"),
            Rule("SPB.3", "start > end: refused with both, as given and as resolved"),
            Rule("SPB.4", "`df.union(df)`"),
        ),
    ),
    Section(
        "6. Sink",
        (),
        (
            Rule("SPS.1", "columns by name, in any case, and type; a wrong or missing one by name"),
            Rule("SPS.2", "null is a tombstone; text or bytes; timestamp and headers"),
            Rule("SPS.3", "`partition` wins over the partitioner, null lets it decide; rows keep their order"),
            Rule("SPS.4", "the option `topic` wins; neither, or a null topic: refused"),
            Rule("SPS.5", "append and complete append; overwrite is refused with the reason; always acks=all"),
            Rule("SPS.6", "whatever is killed (task, executor, driver, broker, coordinator), as if it had run once"),
            Rule("SPS.7", "a speculative or zombie attempt leaves nothing visible"),
            Rule("SPS.8", "a batch write: all rows when `save()` has returned, or none ever"),
            Rule("SPS.9", "`exactlyOnce=false`"),
            Rule("SPS.10", "T, G, A, R"),
            Rule("SPS.11", "1 Enlist: ALREADY for the last one and a new run"),
            Rule("SPS.12", "1 any other: refused with both numbers"),
            Rule(
                "SPS.13",
                "1 ALREADY is for a replay: as many rows, of the same query, offsets, topics and columns; else refused",
            ),
            Rule("SPS.14", "5 what earlier versions kept is still compared"),
            Rule(
                "SPS.15",
                "1 superseded runs and attempts refused; a new attempt takes over; only ENLISTED supersedes",
                wrong=(
                    Mutant("17 attempts named by the client win", simulation=transactions.attempts_win_not_producers),
                ),
            ),
            Rule("SPS.16", "2 the leader registers before the first record"),
            Rule("SPS.17", "3 all acknowledged, then the report; an exception aborts the task's own"),
            Rule(
                "SPS.18",
                "4 kept alive throughout `write`, before its first row too; the writer that enlisted last says the "
                "time-out, a minute",
            ),
            Rule("SPS.19", "5 End: a repeat gets the same answer; retried until known, else UnknownOutcome"),
            Rule("SPS.20", "6 Abort after a commit changes nothing; all None: no message names it"),
            Rule(
                "SPS.21",
                "a batch write begins on the driver; one that died before End leaves nothing, after End everything; a "
                "zombie is refused",
            ),
            Rule("SPS.22", "writes of one name and version to several topics are each written once"),
            Rule("SPS.23", "rows that their topic no longer keeps are told of"),
            Rule("SPS.24", "both options: exactly once over re-runs, in foreachBatch too; without: atomic, and again"),
            Rule(
                "SPS.25",
                "7 a block: all writes and the offsets, or nothing; a raising block aborts; a driver that dies before "
                "the commit leaves nothing",
            ),
            Rule(
                "SPS.26", "7 a replay passes over; other content is refused; so is a second block of a name in a batch"
            ),
            Rule(
                "SPS.27",
                "7 nothing is committed without the hand-over of each write; none begins behind the end; an older "
                "driver commits nothing",
            ),
        ),
    ),
    Section(
        "Bad input: refused clearly, nothing written",
        (),
        (
            Rule("SPX.1", "offsets JSON of another topic"),
            Rule("SPX.2", "a topic that was taken out: told until one run lets it go; its place is kept"),
            Rule("SPX.3", "a checkpoint of another query, or of another source"),
            Rule("SPX.4", "a checkpoint of a newer version"),
            Rule("SPX.5", "a checkpoint whose topic is gone, or is another one"),
            Rule(
                "SPX.6",
                "two queries under one checkpoint, or under a copy of it",
                seldom="Spark needs most of a minute to refuse the former",
            ),
        ),
    ),
    Section(
        "Topics with a schema in the sink",
        (),
        (
            Rule("SPY.1", "matched by name, cast without a loss, missing nullable columns are null"),
            Rule("SPY.2", "what would be lost is refused with column and count, and nothing is written"),
            Rule("SPY.3", "exactly once over restarts"),
            Rule("SPY.4", "`mergeSchema`, by the version that came of it whatever a task knew"),
            Rule("SPY.5", "`createTopic`; level 2"),
        ),
    ),
    Section(
        "7. What Kafka's connector lacks",
        (),
        (
            Rule("SPK.1", "lag under the group id; `startingOffsets=group`"),
            Rule("SPK.2", "relative starts"),
            Rule("SPK.3", "nothing but what lies between start and end is read"),
            Rule("SPK.4", "the record's timestamp"),
            Rule("SPK.5", "safe re-creation of topics"),
            Rule("SPK.6", "columnar reads"),
        ),
    ),
    Section(
        "8. Clusters",
        (),
        (
            Rule("SPC.1", "local-cluster, standalone with two workers, Spark Connect; spark-submit"),
            Rule("SPC.2", "speculation, on two host names", seldom="it needs two workers with host names of their own"),
            Rule(
                "SPC.3", "an executor, and the driver in the middle of a batch, are killed", seldom="kills take minutes"
            ),
            Rule("SPC.4", "a Python thread other than the main one: the remedy"),
        ),
    ),
    Section(
        "9. Queues",
        (),
        (
            Rule(
                "SPQ.1",
                "the leases of a batch stand in its offset; neighbours are read as one; small ranges share a task",
            ),
            Rule("SPQ.2", "the rows and their settlement are one transaction, over restarts"),
            Rule("SPQ.3", "the offsets of the checkpoint in both of Spark's forms"),
            Rule("SPQ.4", "locks are renewed while a batch runs, and end with the process of the source"),
            Rule(
                "SPQ.5", "a batch whose locks have ended reads nothing; one that was read, and cannot be settled, fails"
            ),
            Rule(
                "SPQ.6",
                "a replay of a committed batch reads the same, or nothing where it was committed without its messages",
            ),
            Rule("SPQ.7", "what an aborted transaction gives back is taken over, and never settled unread"),
            Rule("SPQ.8", "a batch without rows settles, too"),
            Rule("SPQ.9", "other sinks: at least once, accepted when the batch is done"),
            Rule("SPQ.10", "an end that Spark has not used is offered again"),
            Rule("SPQ.11", "refusals"),
        ),
    ),
)
