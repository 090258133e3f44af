// The bookkeeping of the paged cache: which blocks are used, by how many sequences, and which hold a prefix
// that a later sequence can use again. It knows nothing of keys and values. One thread.
//
// A block is free, held (by one sequence or more), or kept: no sequence holds it, but its prefix can be found until the
// block is needed. A prefix is identified by its parent and its own 16 tokens. They are compared in full, so two
// prefixes with equal hashes are not confused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace bascule::ref {

inline constexpr std::size_t kBlockTokens = 16;

using BlockId = std::int32_t;
using PrefixId = std::uint64_t;  // never given twice
inline constexpr PrefixId kNoPrefix = 0;

class BlockPool {
 public:
  explicit BlockPool(std::size_t blocks);

  std::size_t size() const { return blocks_.size(); }
  std::size_t available() const { return free_.size() + kept_.size(); }

  // Returns a block held once: the least recently used kept one if none is free, nullopt if all are held.
  std::optional<BlockId> allocate();
  void retain(BlockId block);
  void free(BlockId block);

  struct Match {
    BlockId block;
    PrefixId prefix;
  };
  // Returns the block that holds `tokens` (kBlockTokens of them) after `parent`, without retaining it.
  std::optional<Match> find(PrefixId parent, std::span<const std::int64_t> tokens) const;
  // Makes `block`, which must be held and full, findable, and returns its prefix. If another block already holds the
  // same tokens, that block stays the findable one.
  PrefixId publish(BlockId block, PrefixId parent, std::span<const std::int64_t> tokens);

  // A prefix of no tokens, different from every other one: the parent of what is computed with other weights than the
  // model's own.
  PrefixId new_root() { return ++last_prefix_; }

  // Forgets all prefixes, for example because the weights have changed. Increments generation(), by which a sequence
  // knows that its prefix is forgotten.
  void drop_prefixes();
  std::uint64_t generation() const { return generation_; }

 private:
  using Tokens = std::array<std::int64_t, kBlockTokens>;
  struct Key {
    PrefixId parent;
    Tokens tokens;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {  // NOLINT(readability-identifier-naming): Abseil's hook
      return H::combine(std::move(state), key.parent, key.tokens);
    }
  };
  struct Block {
    int holders = 0;
    std::optional<Key> published;
    std::list<BlockId>::iterator kept;  // valid while held by none and published
  };
  static Key key(PrefixId parent, std::span<const std::int64_t> tokens);
  Block& at(BlockId block) { return blocks_[static_cast<std::size_t>(block)]; }

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;
  std::list<BlockId> kept_;  // the least recently used first
  absl::flat_hash_map<Key, Match> prefixes_;
  PrefixId last_prefix_ = kNoPrefix;
  std::uint64_t generation_ = 0;
};

}  // namespace bascule::ref
