"""What nodes lack for code bundles is asked for once, and what is in use is remembered."""

from __future__ import annotations

from coordinator.fleet.model import Code
from coordinator.fleet.nodes.bundles import BundleFits
from coordinator.fleet.nodes.nodes import NodeId

A, B = NodeId("a"), NodeId("b")
OLD, NEW, FILE = Code("x.py", "X", "x", "1"), Code("x.py", "X", "x", "2"), Code("/x.py", "X", "y")


def test_a_bundle_is_looked_at_once_on_each_node() -> None:
    fits = BundleFits()
    assert fits.to_ask([A, B], [OLD, FILE]) == [(A, "1"), (B, "1")]
    assert fits.unfit([A, B], [OLD, FILE]) == {OLD: {A: None, B: None}}
    fits.note(A, "1", "")
    fits.note(B, "1", "httpx>=9 (has no httpx)")
    assert fits.to_ask([A, B], [OLD, FILE]) == []
    assert fits.unfit([A, B], [OLD]) == {OLD: {B: "httpx>=9 (has no httpx)"}}
    assert fits.unfit([A], [OLD]) == {OLD: {}}


def test_what_lacked_something_is_asked_again_and_what_is_not_in_use_is_forgotten() -> None:
    fits = BundleFits()
    for node in (A, B):
        fits.note(node, "1", "x" if node == B else "")
        fits.note(node, "2", "")
    fits.forget_lacking()
    assert fits.to_ask([A, B], [OLD, NEW]) == [(B, "1")]
    fits.note(B, "1", "")
    assert fits.to_ask([A], [NEW]) == []
    assert fits.to_ask([A, B], [OLD, NEW]) == [(A, "1"), (B, "1"), (B, "2")]
