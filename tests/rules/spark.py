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
                "SPF.2",
                "the connector takes the keys of options in any case. It ignores the options that "
                "Spark adds (`checkpointlocation`, `queryname`)",
            ),
            Rule("SPF.3", "a refusal is the first line of Spark's error and has no traceback. A bug has one"),
            Rule("SPF.4", '`load("t")`, `save("t")`, `start("t")` are refused'),
            Rule(
                "SPF.5",
                "a table of the catalog has its options from the metadata of its columns, and keeps the columns of "
                "its creation",
            ),
            Rule(
                "SPF.6",
                "options of a read count before those of its table. A table that is made with columns "
                "has no options. CREATE TABLE refuses a table that nobody could read",
            ),
            Rule("SPF.7", "nothing is inserted into a table: an `INSERT` shows the options of the table that is read"),
            Rule("SPF.8", "a view shows the records of the moment of its first action"),
            Rule(
                "SPF.9",
                "the connector checks the options of a source at `load()`, and in the plan if "
                "`.schema(…)` has left that out",
            ),
            Rule("SPF.10", "sink options of a stream are checked in its first micro-batch"),
            Rule("SPF.11", "Arrow batches of exact column order and types, all nullable, of a bounded size"),
            Rule("SPF.12", "`latestOffset` combines all limits. The trigger Once passes none of them"),
            Rule(
                "SPF.13",
                "the initial offset is asked for twice, and again at a replay of batch 0: cached, and in `__from`",
            ),
            Rule("SPF.14", "offsets as JSON text: keys sorted, an unchanged `start` as it came"),
            Rule("SPF.15", "an idle query waits at the brokers for a bounded time. Its report comes from memory"),
            Rule(
                "SPF.16",
                "nothing depends on `commit(end)` or `stop()`. The start of `latestOffset` is the end "
                "of a finished batch",
            ),
            Rule("SPF.17", "`partitions` is pure"),
            Rule("SPF.18", "observers: numbers are those of the topics, queries do not depend on it"),
            Rule("SPF.19", "`minilog.config.file`: below options, in no plan, refused where others can read secrets"),
            Rule(
                "SPF.20",
                "secrets are no options, and never stand in a table. The connector takes Kafka's "
                "names of security. It refuses an unknown option without its value",
            ),
            Rule(
                "SPF.21",
                "a job uses a secured cluster by a file or the environment, with just the rules of a "
                "job. A job without a right gets an error that names the right",
            ),
            Rule("SPF.22", "no password in event log, UI, plans, checkpoints, progress, processes, errors, logs"),
            Rule(
                "SPF.23",
                "with `delegationTokens` tasks log in by a token. The driver renews it at half of its "
                "life and replaces it at its maximum. Nothing that Spark leaves has the token",
            ),
            Rule("SPF.24", "progress: `latestOffset`, numInputRows, numOutputRows"),
            Rule("SPF.25", "filters are never pushed"),
            Rule(
                "SPF.26",
                "the sink takes query, batch and run from local properties. They survive restarts. A "
                "replayed batch may have other tasks",
            ),
            Rule(
                "SPF.27",
                "in foreachBatch they name no write: each has its own name, and a second one under a name is refused",
            ),
            Rule("SPF.28", "a writer has the id of its tasks. `commit` and `abort` know messages only"),
            Rule("SPF.29", "`abort` gets None for failed tasks, and may follow a commit"),
            Rule(
                "SPF.30", "a query that is stopped in a batch: the driver finds the attempt by its mark, and aborts it"
            ),
            Rule(
                "SPF.31",
                "`saveAsTable`, `writeTo` and `toTable` leave a table that nobody can read. The error "
                "names the right call",
            ),
            Rule("SPF.32", "empty partitions call nobody"),
            Rule("SPF.33", "the input is always drained, so that state is whole"),
            Rule(
                "SPF.34",
                "the sink casts the Arrow types that the session has (large types, zone). It cuts "
                "batches to batch.size. Only a record above max.message.bytes is too large",
            ),
            Rule("SPF.35", "update mode, errorIfExists and ignore are refused by Spark"),
            Rule("SPF.36", "no gRPC before the fork, clients live between tasks, one that failed is closed"),
        ),
    ),
    Section(
        "2. Source options",
        (),
        (
            Rule("SPO.1", "`bootstrap.servers` has three names, and is required"),
            Rule(
                "SPO.2",
                "a read has exactly one of `subscribe`, `subscribePattern` (as in Java) and `assign`. "
                "Internal topics never match",
            ),
            Rule("SPO.3", "`startingOffsets`: words, JSON per topic and partition"),
            Rule(
                "SPO.4",
                "timestamps count before offsets, in their order, and are exact. If no record is so "
                "young, the strategy decides",
            ),
            Rule("SPO.5", "ends: batch only, all three refused in a stream"),
            Rule("SPO.6", "`maxOffsetsPerTrigger` in proportion, no starving, no overflow"),
            Rule(
                "SPO.7",
                "`minOffsetsPerTrigger` and `maxTriggerDelay` hold a small batch back. A minimum "
                "above the maximum is refused",
            ),
            Rule("SPO.8", "`maxBytesPerTrigger`"),
            Rule("SPO.9", "`minPartitions`, `maxRecordsPerPartition`: no offset lost or read twice"),
            Rule("SPO.10", "`failOnDataLoss=false`: warn, skip, no duplicate, no failure"),
            Rule("SPO.11", "`includeHeaders`"),
            Rule("SPO.12", "`fetchOffset.*`"),
            Rule("SPO.13", "`groupIdPrefix`, `minilog.group.id`"),
            Rule("SPO.14", "`minilog.isolation.level`"),
            Rule(
                "SPO.15", "`minilog.*` sets any setting of the client. The connector refuses its own settings by name"
            ),
            Rule("SPO.16", "the refusal of an unknown option has the nearest name. Numbers below 1 are refused"),
            Rule("SPO.17", "each refusal is one sentence with option, value and remedy"),
            Rule("SPO.18", "a start counts for a new query only"),
            Rule("SPO.19", "new partitions and topics start at earliest, also while it runs"),
            Rule("SPO.20", "all columns of the schema may be null. Headers are null if a record has none"),
            Rule(
                "SPO.21", "the offset of a source has one form, and is never `{}`. The source takes Kafka's form, too"
            ),
            Rule("SPO.22", "every option is in the guide"),
        ),
    ),
    Section(
        "2.1 Topics with a schema",
        (),
        (
            Rule("SPT.1", "the columns, types and nullability of the topic"),
            Rule("SPT.2", "with `columns` no other column travels. `metadata` and `view=kafka` add columns"),
            Rule(
                "SPT.3",
                "`view=latest` gives the newest row of each key, as a window of Spark gives it. It "
                "can be as of a time, and by parts of the keys. It leaves out deletions and rows "
                "without a key",
            ),
            Rule(
                "SPT.4",
                "a table of the catalog may have `view=latest`. A stream of it, and options that cut "
                "a partition, are refused. Retention below it is loss",
            ),
            Rule(
                "SPT.5",
                "if a stream joins `view=latest`, each micro-batch has the newest table, whichever "
                "way the table was made. A cleaning ends no query. An end as of a place stays",
            ),
            Rule("SPT.6", "`where` chooses the rows that Spark's own filter chooses, with nulls and NaN"),
            Rule("SPT.7", "`.schema(…)` is a projection by name, to the same types or wider ones"),
            Rule(
                "SPT.8",
                "all topics of a read have the same columns. Topics with a schema and topics without one do not mix",
            ),
            Rule(
                "SPT.9",
                "a stream keeps its columns while a schema evolves. Its checkpoint has the version. "
                "Checkpoints of earlier versions go on",
            ),
            Rule("SPT.10", "`onSchemaChange=fail` ends it"),
            Rule("SPT.11", "a value that the columns of a query cannot hold ends the query"),
            Rule("SPT.12", "tasks of several queries share a consumer"),
        ),
    ),
    Section(
        "3. Data loss",
        (),
        (
            Rule("SPL.1", "a topic deleted, or created again, between runs and while it runs"),
            Rule(
                "SPL.2",
                "a deleted topic leaves the offsets when the query has warned of it and the "
                "controller confirms that the topic is gone",
            ),
            Rule("SPL.3", "with fewer partitions"),
            Rule("SPL.4", "aged out or trimmed: topic, partition, both offsets"),
            Rule("SPL.5", "a new partition or topic that begins above offset 0"),
            Rule("SPL.6", "an end below a start, or below one heard of: asked again, reported, never moved back"),
            Rule(
                "SPL.7",
                "markers and aborted records are gaps. A batch may end on one. The query waits out no "
                "time-out for them",
            ),
            Rule("SPL.8", "transient failures are not shown"),
        ),
    ),
    Section(
        "4. Triggers, and several sources",
        (),
        (
            Rule(
                "SPG.1", "AvailableNow reads the records of its start, within limits, also over a restart in the middle"
            ),
            Rule("SPG.2", "partitions that vanish meanwhile are named"),
            Rule("SPG.3", "Once reads all records without limits, also over a restart in the middle"),
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
            Rule("SPB.1", "a batch reads from earliest to latest. The first action fixes `latest`"),
            Rule("SPB.2", "start and end name the same partitions"),
            Rule("SPB.3", "start > end: refused with both, as given and as resolved"),
            Rule("SPB.4", "`df.union(df)`"),
        ),
    ),
    Section(
        "6. Sink",
        (),
        (
            Rule(
                "SPS.1",
                "the sink finds columns by name in any case, and checks their types. The error names "
                "a wrong or a missing column",
            ),
            Rule(
                "SPS.2",
                "a null value is a tombstone. Keys and values are text or bytes. Rows may have a timestamp and headers",
            ),
            Rule(
                "SPS.3",
                "the column `partition` counts before the partitioner, and null lets the partitioner "
                "decide. Rows keep their order",
            ),
            Rule("SPS.4", "the option `topic` counts before the column. A row without a topic is refused"),
            Rule(
                "SPS.5",
                "the sink takes the modes append and complete, and appends in both. It refuses "
                "overwrite with the reason. It always writes with acks=all",
            ),
            Rule("SPS.6", "whatever is killed (task, executor, driver, broker, coordinator), as if it had run once"),
            Rule("SPS.7", "a speculative or zombie attempt leaves nothing visible"),
            Rule("SPS.8", "a batch write: all rows when `save()` has returned, or none ever"),
            Rule("SPS.9", "`exactlyOnce=false`"),
            Rule("SPS.10", "T, G, A, R"),
            Rule("SPS.11", "step 1: Enlist answers ALREADY to a new run that asks for the last committed generation"),
            Rule("SPS.12", "step 1: Enlist refuses any other generation, and names both numbers"),
            Rule(
                "SPS.13",
                "step 1: ALREADY counts for a replay alone. A replay has as many rows, and the same query, "
                "offsets, topics and columns. The sink refuses another write",
            ),
            Rule("SPS.14", "step 5: the sink still compares the facts that earlier versions kept"),
            Rule(
                "SPS.15",
                "step 1: superseded runs and attempts are refused. A new attempt takes over. Only ENLISTED supersedes",
                wrong=(
                    Mutant("17 attempts named by the client win", simulation=transactions.attempts_win_not_producers),
                ),
            ),
            Rule("SPS.16", "2 the leader registers before the first record"),
            Rule(
                "SPS.17",
                "step 3: a task reports when all its records are acknowledged. After an exception a "
                "task aborts its own part",
            ),
            Rule(
                "SPS.18",
                "step 4: a task keeps its part alive throughout `write`, also before its first row. "
                "The writer that enlisted last sets the time-out, a minute",
            ),
            Rule(
                "SPS.19",
                "step 5: the coordinator gives a repeated End the same answer. The driver repeats End until "
                "it knows the outcome. At its time-out the driver raises UnknownOutcome",
            ),
            Rule(
                "SPS.20",
                "step 6: an Abort after a commit changes nothing. If all messages are None, no message names the part",
            ),
            Rule(
                "SPS.21",
                "a batch write begins on the driver. A driver that dies before End leaves nothing, "
                "and one that dies after End leaves all rows. A zombie is refused",
            ),
            Rule("SPS.22", "writes of one name and version to several topics are each written once"),
            Rule("SPS.23", "the sink warns of rows that their topic keeps no longer"),
            Rule(
                "SPS.24",
                "with both options a write is exactly once over re-runs, also in foreachBatch. "
                "Without them it is atomic, and a re-run writes again",
            ),
            Rule(
                "SPS.25",
                "step 7: a block writes all its rows and offsets, or nothing. A block that raises "
                "aborts. A driver that dies before the commit leaves nothing",
            ),
            Rule(
                "SPS.26",
                "step 7: a replay of a committed block writes nothing. Other content is refused, and "
                "so is a second block of one name in a batch",
            ),
            Rule(
                "SPS.27",
                "step 7: a block commits only after each write has handed its parts over. No write "
                "begins behind the end. An older driver commits nothing",
            ),
        ),
    ),
    Section(
        "Bad input: refused clearly, nothing written",
        (),
        (
            Rule("SPX.1", "offsets JSON of another topic"),
            Rule(
                "SPX.2",
                "a query warns of a topic that its options leave out, until one run lets the topic "
                "go. It keeps the place of the topic",
            ),
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
            Rule(
                "SPY.2",
                "the sink refuses a value that would be lost, with its column and the count of rows, "
                "and writes nothing",
            ),
            Rule("SPY.3", "exactly once over restarts"),
            Rule("SPY.4", "`mergeSchema`, by the version that came of it whatever a task knew"),
            Rule("SPY.5", "`createTopic` makes a topic of the columns. It needs level 2"),
        ),
    ),
    Section(
        "7. What Kafka's connector lacks",
        (),
        (
            Rule(
                "SPK.1",
                "brokers show the lag of a query under its group id. `startingOffsets=group` begins "
                "at the offsets of a group",
            ),
            Rule("SPK.2", "relative starts"),
            Rule("SPK.3", "a read takes only records between its start and its end"),
            Rule("SPK.4", "the record's timestamp"),
            Rule("SPK.5", "safe re-creation of topics"),
            Rule("SPK.6", "columnar reads"),
        ),
    ),
    Section(
        "8. Clusters",
        (),
        (
            Rule(
                "SPC.1",
                "the connector runs on local-cluster, on a standalone cluster with two workers, in "
                "Spark Connect and by spark-submit",
            ),
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
                "the leases of a batch stand in its offset. The source reads neighbours as one range. "
                "Small ranges share a task",
            ),
            Rule("SPQ.2", "the rows and their settlement are one transaction, over restarts"),
            Rule("SPQ.3", "the offsets of the checkpoint in both of Spark's forms"),
            Rule("SPQ.4", "locks are renewed while a batch runs, and end with the process of the source"),
            Rule(
                "SPQ.5",
                "a batch whose locks have ended reads nothing. A batch that was read, and that nobody "
                "can settle, fails",
            ),
            Rule(
                "SPQ.6",
                "a replay of a committed batch reads the same, or nothing where it was committed without its messages",
            ),
            Rule(
                "SPQ.7",
                "a query takes over the messages that an aborted transaction gives back, and never settles them unread",
            ),
            Rule("SPQ.8", "a batch without rows settles, too"),
            Rule("SPQ.9", "other sinks: at least once, accepted when the batch is done"),
            Rule("SPQ.10", "an end that Spark has not used is offered again"),
            Rule("SPQ.11", "refusals"),
        ),
    ),
)
