"""`minilog acl`: who may do what, in the words of kafka-acls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from minilog.security.access_rules import (
    ANY,
    CLUSTER_NAME,
    AccessRule,
    AccessRuleFilter,
    Operation,
    Pattern,
    Permission,
    ResourceKind,
)
from minilog_broker.cli.common import (
    AsJson,
    BootstrapServers,
    CommandConfig,
    admin_client,
    client_settings,
    print_json,
    print_table,
    say,
    say_who_has_not_heard,
)
from minilog_broker.cli.examples import examples
from minilog_broker.failure import CommandFailed

app = typer.Typer(no_args_is_help=True)
Allowed = Annotated[
    list[str] | None, typer.Option("--allow-principal", metavar="User:NAME", help="User:* is everybody. Repeatable.")
]
Denied = Annotated[
    list[str] | None, typer.Option("--deny-principal", metavar="User:NAME", help="Counts above what is allowed.")
]
Operations = Annotated[list[Operation] | None, typer.Option("--operation", help="Repeatable.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="'*' is every topic. Repeatable.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="'*' is every group. Repeatable.")]
TransactionalIds = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="NAME", help="'*' is every one. Repeatable.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="All whose names begin so.")]
Hosts = Annotated[
    list[str] | None, typer.Option("--host", metavar="ADDRESS", help="The client's address. Default: any.")
]
OfProducer = Annotated[
    bool, typer.Option("--producer", help="What writing to --topic needs, and to --transactional-id.")
]
OfConsumer = Annotated[bool, typer.Option("--consumer", help="What reading --topic in --group needs.")]

_PRODUCER = {
    ResourceKind.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceKind.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceKind.GROUP: (Operation.READ,),
}
"""By kind: what a producer and a consumer need (Kafka's --producer and --consumer)."""

Resource = tuple[ResourceKind, str]


@dataclass(frozen=True, slots=True)
class Said:
    """What the options say of rules."""

    principals: tuple[tuple[str, Permission], ...]
    operations: tuple[Operation, ...]
    resources: tuple[Resource, ...]
    pattern: Pattern
    hosts: tuple[str, ...]
    producer: bool
    consumer: bool

    def grants(self) -> list[tuple[Resource, Operation]]:
        """Which operations on which resources. Wrong usage where that is not said whole."""
        kinds = {kind for kind, _ in self.resources}
        if self.producer and ResourceKind.TOPIC not in kinds:
            raise typer.BadParameter("--producer needs --topic NAME")
        if self.consumer and not {ResourceKind.TOPIC, ResourceKind.GROUP} <= kinds:
            raise typer.BadParameter("--consumer needs --topic NAME and --group NAME")
        found = list(itertools.product(self.resources, self.operations))
        for table, is_meant in ((_PRODUCER, self.producer), (_CONSUMER, self.consumer)):
            if is_meant:
                found += [(each, operation) for each in self.resources for operation in table.get(each[0], ())]
        return list(dict.fromkeys(found))


@app.callback()
def acl() -> None:
    """Add, list and remove access rules. Rules allow or deny. Anything that no rule allows is denied."""


@app.command(
    epilog=examples(
        "minilog acl add --allow-principal User:alice --operation read --topic flights",
        "minilog acl add --allow-principal User:report --consumer --topic flights --group report",
    )
)
def add(
    allowed: Allowed = None,
    denied: Denied = None,
    operations: Operations = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    of_cluster: OfCluster = False,
    prefixed: Prefixed = False,
    hosts: Hosts = None,
    producer: OfProducer = False,
    consumer: OfConsumer = False,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Add rules: each principal, with each operation, on each resource, from each host."""
    resources = _resources(topics, groups, transactional_ids, of_cluster)
    said = _said(allowed, denied, operations, resources, hosts, prefixed=prefixed, producer=producer, consumer=consumer)
    rules = wanted_rules(said)
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        created = admin.create_access_rules(rules)
        if denied:
            say_who_has_not_heard(admin)
    if as_json:
        print_json({"created": created, "rules": [rule_document(each) for each in rules]})
        return
    _print_rules(rules)
    say(f"{created} rules added" + (f", {len(rules) - created} were there already" if created < len(rules) else ""))


@app.command(
    epilog=examples(
        "minilog acl remove --allow-principal User:alice --topic flights",
        "minilog acl remove --allow-principal User:report --group report",
    )
)
def remove(
    allowed: Allowed = None,
    denied: Denied = None,
    operations: Operations = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    of_cluster: OfCluster = False,
    prefixed: Prefixed = False,
    hosts: Hosts = None,
    producer: OfProducer = False,
    consumer: OfConsumer = False,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """Remove the rules that have what is said: what is not said may be anything. A name is that of literal rules, with
    --prefixed that of prefixed ones."""
    resources = _resources(topics, groups, transactional_ids, of_cluster)
    said = _said(allowed, denied, operations, resources, hosts, prefixed=prefixed, producer=producer, consumer=consumer)
    filters = wanted_filters(said)
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        deleted = admin.delete_access_rules(filters)
        if deleted:
            say_who_has_not_heard(admin)
    if not deleted:
        raise CommandFailed("no rule has all of that, and none was removed: see `minilog acl list`")
    if as_json:
        print_json([rule_document(each) for each in deleted])
        return
    _print_rules(deleted)
    say(f"{len(deleted)} rules removed")


@app.command(
    "list", epilog=examples("minilog acl list --topic flights", "minilog acl list --principal User:alice --json")
)
def list_(
    principal: Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Default: all.")] = None,
    topics: Topics = None,
    groups: Groups = None,
    transactional_ids: TransactionalIds = None,
    of_cluster: OfCluster = False,
    bootstrap_servers: BootstrapServers = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
) -> None:
    """List the rules, literal ones and prefixed ones: all, or those that name one of the resources."""
    named = _resources(topics, groups, transactional_ids, of_cluster)
    with admin_client(client_settings(bootstrap_servers, command_config)) as admin:
        found = admin.describe_access_rules(AccessRuleFilter(principal=principal))
    shown = [each for each in found if not named or (each.resource_kind, each.name) in named]
    if as_json:
        print_json([rule_document(each) for each in shown])
    else:
        _print_rules(shown)


def rule_document(rule: AccessRule) -> dict[str, Any]:
    """What machines get to read of one rule."""
    return {
        "resource": rule.resource_kind.value,
        "name": rule.name,
        "pattern": rule.pattern.value,
        "principal": rule.principal,
        "permission": rule.permission.value,
        "operation": rule.operation.value,
        "host": rule.host,
    }


def wanted_rules(said: Said) -> list[AccessRule]:
    """All that the options say together. Wrong usage where something is missing."""
    if not said.principals:
        raise typer.BadParameter("give the rule's principal: --allow-principal User:NAME or --deny-principal User:NAME")
    if not said.resources:
        raise typer.BadParameter("give the rule's resource: --topic, --group, --transactional-id or --cluster")
    if not said.operations and not said.producer and not said.consumer:
        raise typer.BadParameter("give the rule's operation: --operation, --producer or --consumer")
    if (said.producer or said.consumer) and any(each is Permission.DENY for _, each in said.principals):
        raise typer.BadParameter("--producer and --consumer allow: deny by --operation")
    return [
        AccessRule(principal, host, operation, *resource, said.pattern, permission)
        for principal, permission in said.principals
        for resource, operation in said.grants()
        for host in said.hosts or (ANY,)
    ]


def wanted_filters(said: Said) -> list[AccessRuleFilter]:
    """What is to be removed. Wrong usage where nothing is said: that would be all rules."""
    grants: Iterable[tuple[Resource | None, Operation | None]]
    if said.producer or said.consumer:
        grants = said.grants()
    else:
        grants = itertools.product(said.resources or (None,), said.operations or (None,))
    filters = [
        AccessRuleFilter(
            principal=principal,
            permission=permission,
            operation=operation,
            resource_kind=None if resource is None else resource[0],
            name=None if resource is None else resource[1],
            pattern=None if resource is None else said.pattern,
            host=host,
        )
        for (principal, permission), (resource, operation), host in itertools.product(
            said.principals or ((None, None),), grants, said.hosts or (None,)
        )
    ]
    if filters == [AccessRuleFilter()]:
        raise typer.BadParameter("give at least one filter: without any, the command would delete all rules")
    return filters


def _resources(
    topics: list[str] | None, groups: list[str] | None, transactional_ids: list[str] | None, of_cluster: bool
) -> tuple[Resource, ...]:
    named = {
        ResourceKind.TOPIC: topics,
        ResourceKind.GROUP: groups,
        ResourceKind.TRANSACTIONAL_ID: transactional_ids,
        ResourceKind.CLUSTER: [CLUSTER_NAME] if of_cluster else None,
    }
    return tuple(dict.fromkeys((kind, name) for kind, names in named.items() for name in names or ()))


def _said(
    allowed: list[str] | None,
    denied: list[str] | None,
    operations: list[Operation] | None,
    resources: tuple[Resource, ...],
    hosts: list[str] | None,
    *,
    prefixed: bool,
    producer: bool,
    consumer: bool,
) -> Said:
    if prefixed and not any(kind is not ResourceKind.CLUSTER for kind, _ in resources):
        raise typer.BadParameter("--prefixed needs a name: --topic, --group or --transactional-id")
    if prefixed and (ResourceKind.CLUSTER, CLUSTER_NAME) in resources:
        raise typer.BadParameter("--prefixed is of names: the cluster has none")
    permitted = [(each, Permission.ALLOW) for each in allowed or ()]
    refused = [(each, Permission.DENY) for each in denied or ()]
    return Said(
        tuple(dict.fromkeys([*permitted, *refused])),
        tuple(dict.fromkeys(operations or ())),
        resources,
        Pattern.PREFIXED if prefixed else Pattern.LITERAL,
        tuple(dict.fromkeys(hosts or ())),
        producer,
        consumer,
    )


def _print_rules(rules: Iterable[AccessRule]) -> None:
    columns = ("resource", "name", "pattern", "principal", "permission", "operation", "host")
    print_table(columns, (rule_document(each).values() for each in rules))
