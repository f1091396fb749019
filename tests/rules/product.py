"""Settings, formats, documents, and the console."""

from __future__ import annotations

from tests.rules import Rule, Section

SECTIONS = (
    Section(
        "Settings, formats, verbs and citations",
        (
            "docs/reference/settings.md",
            "docs/spec/limits.md",
            "docs/spec/formats.md",
            "docs/reference/commands.md",
            "docs/spec/README.md#citations",
        ),
        (
            Rule(
                "DOC.1",
                "every setting has its name, default and allowed values. Some bounds are not configurable. A request "
                "may name a limited number of things",
            ),
            Rule("DOC.2", "the settings of a broker and of a client come in layers. A refusal has the nearest name"),
            Rule(
                "DOC.3",
                "the documents have the header of a batch, the attributes, services and calls, the records of the "
                "metadata log, and the verbs with their options",
            ),
            Rule("DOC.4", "cited documents, sections, invariants, wrong rules, targets and tests exist"),
            Rule("DOC.5", "the reference has the errors, metrics and public names of Python as the code has them"),
            Rule("DOC.6", "the guide to errors has each error sentence of the Spark connector"),
            Rule(
                "DOC.7",
                "documents are pages of one site. Their links lead to existing pages. The site loads nothing from the "
                "net",
            ),
            Rule("DOC.8", "the Python code of documents runs, and does what the documents describe"),
            Rule(
                "DOC.9",
                "the commands and settings files in documents are valid. Everything that the page about Kafka lists "
                "as the same exists here",
            ),
            Rule("DOC.10", "each wrong rule has a mutant, and each mutant belongs to a rule"),
            Rule(
                "DOC.11",
                "pages of users, help and messages have no word that docs/internals/words.md rules out. "
                "ARCHITECTURE stays short. All documents name the version of the package",
            ),
        ),
    ),
    Section(
        "The console",
        (),
        (
            Rule("CON.1", "a stranger gets the login on each route, and nothing else"),
            Rule("CON.2", "a viewer has the rights of its own user. A viewer whose user is deleted is logged out"),
            Rule(
                "CON.3",
                "input of people and the content of records are shown as text. Only scripts that are files of the "
                "console run",
            ),
            Rule(
                "CON.4",
                "a console that a broker serves ends with the broker. If the console ends by itself, it is started "
                "again. It does not delay a stop of the broker",
            ),
            Rule(
                "CON.5",
                "a console on another address than loopback has TLS. If the broker has users, the console connects to "
                "a listener where viewers log in",
            ),
            Rule("CON.6", "only a form of this browser can change something. A final action needs a tick"),
            Rule(
                "CON.7",
                "one look at the cluster serves all viewers of a client. It stays valid for a hundred times the CPU "
                "time that it took",
            ),
            Rule("CON.8", "records, sessions, connections, forms and histories have limits"),
        ),
    ),
)
