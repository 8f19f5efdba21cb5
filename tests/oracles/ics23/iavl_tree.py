"""The IAVL+ tree of deployed chains: a leaf-valued AVL tree of immutable committed nodes (IBC reference 2.6).

Nodes are rows of columns. A change copies the nodes on its path that earlier versions hold, and works in place on those
that are new since the last commit. What deployed trees compute on the way up from every change, and nobody sees before
the commit, is left for the commit: sizes, versions and hashes, level by level.

Keys of one update are applied ascending. The path to the last change is kept, and the next one starts from the lowest
node of it that covers its key; on the way up from an insertion the walk ends where a height stays what it was. So a
queue's push costs amortised constant time, wherever in the store the queue lies, after the O(log n) of the first one.
"""

from __future__ import annotations

from array import array

NONE = -1
"""No node: an empty tree's root."""


class IavlNodes:
    """The nodes of all versions, by number. A leaf has height 0 and no children; ``entry`` is the row of its entry.

    An inner node's ``entry`` is the row of its split key: keys below it lie left, all others right.
    """

    __slots__ = ("entry", "height", "keys", "left", "right", "size", "values", "version")

    def __init__(self) -> None:
        self.left = array("q")
        self.right = array("q")
        self.height = array("b")
        self.entry = array("q")
        self.size = array("q")
        self.version = array("q")
        self.keys: list[bytes] = []
        self.values: list[bytes] = []

    def __len__(self) -> int:
        return len(self.left)

    def add_entry(self, key: bytes, value: bytes) -> int:
        """Return the row of a new entry."""
        self.keys.append(key)
        self.values.append(value)
        return len(self.keys) - 1

    def add_leaf(self, entry: int) -> int:
        """Return a new leaf; its size is 1, its version comes with the commit."""
        return self._add(NONE, NONE, 0, entry, 1)

    def add_inner(self, left: int, right: int, entry: int) -> int:
        """Return a new inner node; its size and version come with the commit."""
        return self._add(left, right, 1 + max(self.height[left], self.height[right]), entry, 0)

    def copy_of(self, node: int) -> int:
        """Return a new node like ``node``."""
        return self._add(self.left[node], self.right[node], self.height[node], self.entry[node], self.size[node])

    def _add(self, left: int, right: int, height: int, entry: int, size: int) -> int:
        self.left.append(left)
        self.right.append(right)
        self.height.append(height)
        self.entry.append(entry)
        self.size.append(size)
        self.version.append(0)
        return len(self.left) - 1

    def find(self, root: int, key: bytes) -> int:
        """Return the leaf of ``key`` under ``root``, or ``NONE``."""
        if root == NONE:
            return NONE
        node = root
        while self.height[node]:
            node = self.left[node] if key < self.keys[self.entry[node]] else self.right[node]
        return node if self.keys[self.entry[node]] == key else NONE


class IavlEditor:
    """One update of a tree: keys are set and deleted in ascending order.

    Attributes:
        root: the root as it now is, ``NONE`` for an empty tree.
    """

    __slots__ = ("_bounds", "_committed", "_nodes", "_path", "root")

    def __init__(self, nodes: IavlNodes, root: int) -> None:
        self._nodes = nodes
        self._committed = len(nodes)
        self.root = root
        # Inner nodes from the root down, all new since the commit, and the upper bound of the keys below each.
        self._path: list[int] = []
        self._bounds: list[bytes | None] = []

    def set(self, key: bytes, value: bytes) -> None:
        """Set ``key``, which is greater than those of the calls before."""
        nodes = self._nodes
        leaf = self._descend(key)
        entry = nodes.add_entry(key, value)
        new = nodes.add_leaf(entry)
        if leaf == NONE:
            self.root = new
            return
        there = nodes.keys[nodes.entry[leaf]]
        if key == there:
            self._link(len(self._path), leaf, new)
            return
        if key < there:
            inner, bound = nodes.add_inner(new, leaf, nodes.entry[leaf]), self._bound(key, leaf)
        else:
            inner, bound = nodes.add_inner(leaf, new, entry), self._bound(key, leaf)
        self._link(len(self._path), leaf, inner)
        self._path.append(inner)
        self._bounds.append(bound)
        self._rebalance(len(self._path) - 2)

    def delete(self, key: bytes) -> None:
        """Delete ``key``, which is stored and greater than those of the calls before."""
        nodes = self._nodes
        leaf = self._descend(key)
        if not self._path:
            self.root = NONE
            return
        parent = self._path.pop()
        self._bounds.pop()
        covered = len(self._path)
        if nodes.right[parent] == leaf:
            self._link(len(self._path), parent, nodes.left[parent])
        else:
            self._link(len(self._path), parent, nodes.right[parent])
            # The node that has the deleted key as its split key is the lowest from which the path goes right.
            split = nodes.entry[parent]
            for depth in range(len(self._path) - 1, -1, -1):
                above = self._path[depth]
                if nodes.keys[nodes.entry[above]] <= key:
                    nodes.entry[above] = split
                    covered = depth + 1
                    break
        self._rebalance(len(self._path) - 1)
        # Keys up to the new split key are left of that node now, and the next key may be one of them.
        del self._path[covered:]
        del self._bounds[covered:]

    def _descend(self, key: bytes) -> int:
        """Make the path that of the leaf that has ``key`` or is to be its neighbour, and return it (or ``NONE``)."""
        nodes, path, bounds = self._nodes, self._path, self._bounds
        if self.root == NONE:
            return NONE
        while path:
            bound = bounds[-1]
            if bound is None or key < bound:
                break
            path.pop()
            bounds.pop()
        if not path:
            if not nodes.height[self.root]:
                return self.root
            self.root = self._own(self.root)
            path.append(self.root)
            bounds.append(None)
        node, bound = path[-1], bounds[-1]
        while True:
            split = nodes.keys[nodes.entry[node]]
            goes_left = key < split
            if goes_left:
                bound = split
            child = nodes.left[node] if goes_left else nodes.right[node]
            if not nodes.height[child]:
                return child
            owned = self._own(child)
            if goes_left:
                nodes.left[node] = owned
            else:
                nodes.right[node] = owned
            node = owned
            path.append(node)
            bounds.append(bound)

    def _bound(self, key: bytes, leaf: int) -> bytes | None:
        """Return below which key lies what a node in the place of ``leaf`` covers."""
        if not self._path:
            return None
        parent = self._path[-1]
        return self._nodes.keys[self._nodes.entry[parent]] if self._nodes.left[parent] == leaf else self._bounds[-1]

    def _own(self, node: int) -> int:
        """Return ``node`` if it is new since the commit, otherwise a copy of it."""
        return node if node >= self._committed else self._nodes.copy_of(node)

    def _link(self, depth: int, old: int, new: int) -> None:
        """Put ``new`` in the place of ``old``, which stands at ``depth``."""
        if not depth:
            self.root = new
            return
        parent = self._path[depth - 1]
        if self._nodes.left[parent] == old:
            self._nodes.left[parent] = new
        else:
            self._nodes.right[parent] = new

    def _rebalance(self, depth: int) -> None:
        """Put heights and balance right from the path's node at ``depth`` up, as far as a change of height reaches."""
        nodes, path = self._nodes, self._path
        height, left, right = nodes.height, nodes.left, nodes.right
        while depth >= 0:
            node = path[depth]
            before = height[node]
            on_left, on_right = height[left[node]], height[right[node]]
            if -1 <= on_left - on_right <= 1:
                height[node] = after = 1 + max(on_left, on_right)
            else:
                top = self._rotate(node, on_left > on_right)
                self._link(depth, node, top)
                del path[depth + 1 :]
                del self._bounds[depth + 1 :]
                path[depth] = top
                after = height[top]
            if after == before:
                return
            depth -= 1

    def _rotate(self, node: int, heavy_left: bool) -> int:
        """Return the root that replaces ``node``, one of whose sides is higher than the other by two."""
        nodes = self._nodes
        near, far = (nodes.left, nodes.right) if heavy_left else (nodes.right, nodes.left)
        child = near[node]
        if nodes.height[near[child]] < nodes.height[far[child]]:
            near[node] = self._turn(self._own(child), far, near)
        return self._turn(node, near, far)

    def _turn(self, node: int, near: array[int], far: array[int]) -> int:
        """Lift the child of ``node`` on the side ``near`` into its place, and return that child."""
        child = self._own(near[node])
        near[node] = far[child]
        far[child] = node
        self._measure(node)
        self._measure(child)
        return child

    def _measure(self, node: int) -> None:
        nodes = self._nodes
        nodes.height[node] = 1 + max(nodes.height[nodes.left[node]], nodes.height[nodes.right[node]])
