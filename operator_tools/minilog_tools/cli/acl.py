"""`minilog acl` adds, removes and lists access rules. Its options have the names of kafka-acls."""

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
from minilog_broker.failure import CommandFailed
from minilog_tools.cli.common import say_late_brokers
from minilog_tools.cli.verb import Cluster, Output, TextTable, verb

app = typer.Typer(no_args_is_help=True)
_PRODUCER = {
    ResourceKind.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceKind.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceKind.GROUP: (Operation.READ,),
}
"""The operations that a producer or a consumer needs, by the kind of resource. They are those of Kafka's --producer and
--consumer."""

Resource = tuple[ResourceKind, str]


@dataclass(frozen=True, slots=True)
class ResourceOptions:
    """The options that name resources."""

    topics: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="'*' is every topic. Repeatable.")
    ] = None
    groups: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="'*' is every group. Repeatable.")
    ] = None
    transactional_ids: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="NAME", help="'*' is every id. Repeatable.")
    ] = None
    of_cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False

    def resources(self) -> tuple[Resource, ...]:
        """The named resources, each once."""
        named = {
            ResourceKind.TOPIC: self.topics,
            ResourceKind.GROUP: self.groups,
            ResourceKind.TRANSACTIONAL_ID: self.transactional_ids,
            ResourceKind.CLUSTER: [CLUSTER_NAME] if self.of_cluster else None,
        }
        return tuple(dict.fromkeys((kind, name) for kind, names in named.items() for name in names or ()))


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """The options that name rules: each principal, with each operation, on each resource, from each host. Raises
    BadParameter where --prefixed has no name to belong to."""

    allowed: Annotated[
        list[str] | None,
        typer.Option("--allow-principal", metavar="User:NAME", help="User:* is everybody. Repeatable."),
    ] = None
    denied: Annotated[
        list[str] | None,
        typer.Option("--deny-principal", metavar="User:NAME", help="A deny counts before an allow. Repeatable."),
    ] = None
    operations: Annotated[list[Operation] | None, typer.Option("--operation", help="Repeatable.")] = None
    named: ResourceOptions = ResourceOptions()
    prefixed: Annotated[bool, typer.Option("--prefixed", help="All names that begin with the given one.")] = False
    hosts: Annotated[
        list[str] | None, typer.Option("--host", metavar="ADDRESS", help="The client's address. Default: any.")
    ] = None
    producer: Annotated[
        bool,
        typer.Option("--producer", help="The operations that a producer needs on --topic and --transactional-id."),
    ] = False
    consumer: Annotated[
        bool, typer.Option("--consumer", help="The operations that a consumer needs on --topic and --group.")
    ] = False

    def __post_init__(self) -> None:
        resources = self.named.resources()
        if self.prefixed and not any(kind is not ResourceKind.CLUSTER for kind, _ in resources):
            raise typer.BadParameter("--prefixed needs a name: --topic, --group or --transactional-id")
        if self.prefixed and self.named.of_cluster:
            raise typer.BadParameter(
                "--prefixed needs names, and the cluster has none: leave out --cluster or --prefixed"
            )

    def principals(self) -> list[tuple[str, Permission]]:
        """Each principal, and whether it may or may not."""
        permitted = [(principal, Permission.ALLOW) for principal in self.allowed or ()]
        refused = [(principal, Permission.DENY) for principal in self.denied or ()]
        return list(dict.fromkeys([*permitted, *refused]))

    @property
    def pattern(self) -> Pattern:
        """Of the names of resources."""
        return Pattern.PREFIXED if self.prefixed else Pattern.LITERAL

    def grants(self) -> list[tuple[Resource, Operation]]:
        """The pairs of a resource and an operation. Raises BadParameter where --producer or --consumer needs more."""
        resources, operations = self.named.resources(), dict.fromkeys(self.operations or ())
        kinds = {kind for kind, _ in resources}
        if self.producer and ResourceKind.TOPIC not in kinds:
            raise typer.BadParameter("--producer needs --topic NAME")
        if self.consumer and not {ResourceKind.TOPIC, ResourceKind.GROUP} <= kinds:
            raise typer.BadParameter("--consumer needs --topic NAME and --group NAME")
        grants = list(itertools.product(resources, operations))
        for table, is_given in ((_PRODUCER, self.producer), (_CONSUMER, self.consumer)):
            if is_given:
                grants += [(resource, operation) for resource in resources for operation in table.get(resource[0], ())]
        return list(dict.fromkeys(grants))


@verb(
    app,
    "minilog acl add --allow-principal User:alice --operation read --topic flights",
    "minilog acl add --allow-principal User:report --consumer --topic flights --group report",
)
def add(cluster: Cluster, options: RuleOptions) -> Output:
    """Add rules: each principal, with each operation, on each resource, from each host."""
    rules = wanted_rules(options)
    created = cluster.admin.create_access_rules(rules)
    if options.denied:
        say_late_brokers(cluster.admin)
    known = f", {len(rules) - created} were there already" if created < len(rules) else ""
    documents = [rule_document(rule) for rule in rules]
    return Output({"created": created, "rules": documents}, _table(documents), f"{created} rules added{known}")


@verb(
    app,
    "minilog acl remove --allow-principal User:alice --topic flights",
    "minilog acl remove --allow-principal User:report --group report",
)
def remove(cluster: Cluster, options: RuleOptions) -> Output:
    """Remove the rules that match all given options. An option that is not given matches anything.

    A name matches literal rules, and with --prefixed prefixed rules.
    """
    filters = wanted_filters(options)
    deleted = cluster.admin.delete_access_rules(filters)
    if not deleted:
        raise CommandFailed("no rule matches all of the options, and none was removed: see `minilog acl list`")
    say_late_brokers(cluster.admin)
    documents = [rule_document(rule) for rule in deleted]
    return Output(documents, _table(documents), f"{len(deleted)} rules removed")


@verb(app, "minilog acl list --topic flights", "minilog acl list --principal User:alice --json", name="list")
def list_(
    cluster: Cluster,
    principal: Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Default: all.")] = None,
    named: ResourceOptions = ResourceOptions(),
) -> Output:
    """List the rules, literal and prefixed: all of them, or those that name one of the given resources."""
    resources = named.resources()
    rules = cluster.admin.describe_access_rules(AccessRuleFilter(principal=principal))
    shown = [rule_document(rule) for rule in rules if not resources or (rule.resource_kind, rule.name) in resources]
    return Output(shown, _table(shown))


def rule_document(rule: AccessRule) -> dict[str, Any]:
    """One rule, for JSON."""
    return {
        "resource": rule.resource_kind.value,
        "name": rule.name,
        "pattern": rule.pattern.value,
        "principal": rule.principal,
        "permission": rule.permission.value,
        "operation": rule.operation.value,
        "host": rule.host,
    }


def wanted_rules(options: RuleOptions) -> list[AccessRule]:
    """All rules that the options name together. Raises BadParameter where an option is missing."""
    principals, hosts = options.principals(), dict.fromkeys(options.hosts or (ANY,))
    if not principals:
        raise typer.BadParameter("give the rule's principal: --allow-principal User:NAME or --deny-principal User:NAME")
    if not options.named.resources():
        raise typer.BadParameter("give the rule's resource: --topic, --group, --transactional-id or --cluster")
    if not options.operations and not options.producer and not options.consumer:
        raise typer.BadParameter("give the rule's operation: --operation, --producer or --consumer")
    if (options.producer or options.consumer) and options.denied:
        raise typer.BadParameter("--producer and --consumer are for rules that allow: deny by --operation")
    return [
        AccessRule(principal, host, operation, *resource, options.pattern, permission)
        for principal, permission in principals
        for resource, operation in options.grants()
        for host in hosts
    ]


def wanted_filters(options: RuleOptions) -> list[AccessRuleFilter]:
    """Filters for the rules to remove. Raises BadParameter without any option, because that would remove all rules."""
    grants: Iterable[tuple[Resource | None, Operation | None]]
    if options.producer or options.consumer:
        grants = options.grants()
    else:
        operations = dict.fromkeys(options.operations or (None,))
        grants = itertools.product(options.named.resources() or (None,), operations)
    filters = [
        AccessRuleFilter(
            principal=principal,
            permission=permission,
            operation=operation,
            resource_kind=None if resource is None else resource[0],
            name=None if resource is None else resource[1],
            pattern=None if resource is None else options.pattern,
            host=host,
        )
        for (principal, permission), (resource, operation), host in itertools.product(
            options.principals() or ((None, None),), grants, dict.fromkeys(options.hosts or (None,))
        )
    ]
    if filters == [AccessRuleFilter()]:
        raise typer.BadParameter("give at least one filter: without any, the command would delete all rules")
    return filters


def _table(documents: list[dict[str, Any]]) -> TextTable:
    columns = ("resource", "name", "pattern", "principal", "permission", "operation", "host")
    return TextTable(columns, (document.values() for document in documents))
