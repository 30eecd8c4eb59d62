// Shares of calls that put columns together: every output row holds the rows of all ranks side by side. Messages begin
// one behind the other in a row. A rank's last columns may be pads, which the output has no room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/pack.hpp"
#include "numeric/column_shares.hpp"
#include "numeric/element_map.hpp"
#include "ops/moves/copy_work.hpp"
#include "ops/moves/row_partition.hpp"

namespace weft::detail {

struct NoMap {};
template <bool mapped>
using MapOf = std::conditional_t<mapped, ElementMap, NoMap>;

// One rank's columns in the output: its rows as one stream of packs (numeric/rows.hpp), each stored at its place.
// `aligned16`: rows of the stream and of the output, and the output's address, are multiples of sixteen bytes.
template <bool aligned16, bool mapped>
class Columns {
 public:
  // `kept`: bytes of a row of the stream that the output has room for.
  struct Args {
    std::byte* data;  // of the first row's first column
    std::uint64_t rows, row_bytes, kept, stride;
    MapOf<mapped> map;
  };
  Columns() = default;
  explicit WEFT_FN Columns(const Args& args) : args_(args) {}

  // The place of a pack whose bits do not change; null if it is not kept.
  WEFT_FN void* find(std::uint64_t pack) const {
    const Place at = place_of(pack);
    return at.row < args_.rows && at.column < args_.kept ? args_.data + at.row * args_.stride + at.column : nullptr;
  }

  // Packs behind the end are not stored.
  WEFT_FN void store(std::uint64_t pack, const Pack& payload) const {
    if (pack * sizeof(Pack) < args_.rows * args_.row_bytes) put(pack, payload);
  }
  WEFT_FN void put(std::uint64_t pack, const Pack& payload) const {
    const Place at = place_of(pack);
    if constexpr (mapped) {
      put_elements(at, payload);
    } else {
      if (aligned16 && at.column + sizeof(Pack) <= args_.kept) {
        *vector_at(at.row * args_.stride + at.column) = vector_of(payload.word);
        return;
      }
      each(at, sizeof(Pack), 1, [&](std::uint32_t i, std::uint64_t offset) {
        args_.data[offset] = static_cast<std::byte>(payload.word[i / 4] >> (i % 4 * 8));
      });
    }
  }

 private:
  struct [[gnu::may_alias]] alignas(16) Vector {
    std::uint32_t word[4];
  };
  struct Place {
    std::uint64_t row, column;  // bytes of the stream's row
  };

  // Most streams are shorter than 4 GiB, and GPUs divide 32 bits in a third of the time.
  WEFT_FN Place place_of(std::uint64_t pack) const {
    const std::uint64_t offset = pack * sizeof(Pack);
    if (((offset | args_.row_bytes) >> 32) == 0) {
      const auto low = static_cast<std::uint32_t>(offset), row_bytes = static_cast<std::uint32_t>(args_.row_bytes);
      return {.row = low / row_bytes, .column = low % row_bytes};
    }
    return {.row = offset / args_.row_bytes, .column = offset % args_.row_bytes};
  }
  WEFT_FN Vector* vector_at(std::uint64_t offset) const { return reinterpret_cast<Vector*>(args_.data + offset); }
  static WEFT_FN Vector vector_of(const std::uint32_t* words) { return {{words[0], words[1], words[2], words[3]}}; }

  // Calls `visit(i, offset of its first byte)` for those of a pack's elements that are kept.
  template <class Visit>
  WEFT_FN void each(Place at, std::uint32_t elements, std::uint32_t widening, Visit visit) const {
    const std::uint32_t bytes = sizeof(Pack) / elements;
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < sizeof(Pack); ++i) {
      if (i >= elements || at.row >= args_.rows) break;
      if (at.column < args_.kept) visit(i, at.row * args_.stride + at.column * widening);
      at.column += bytes;
      if (at.column < args_.row_bytes) continue;
      at.column = 0;
      ++at.row;
    }
  }

  WEFT_FN void put_elements(Place at, const Pack& payload) const {
    const ElementMap& map = args_.map;
    const std::uint32_t widening = map.widening();
    std::uint32_t words[8];
    map.change(payload, words);
    if (aligned16 && at.column + sizeof(Pack) <= args_.kept) {
      Vector* const to = vector_at(at.row * args_.stride + at.column * widening);
      to[0] = vector_of(words);
      if (widening == 2) to[1] = vector_of(words + 4);
      return;
    }
    each(at, map.elements(), widening, [&](std::uint32_t i, std::uint64_t offset) {
      if (map.to == DataType::f32) {
        *reinterpret_cast<Word*>(args_.data + offset) = words[i];
      } else {
        *reinterpret_cast<Half*>(args_.data + offset) = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
      }
    });
  }
  using Word [[gnu::may_alias]] = std::uint32_t;
  using Half [[gnu::may_alias]] = std::uint16_t;

  Args args_{};
};

// `mapped`: elements are changed on their way to the output.
template <bool mapped>
struct ColumnPlaces {
  ColumnShares shares;    // of an output row
  std::uint32_t element;  // bytes, before it is widened
  MapOf<mapped> map = {};

  // The sender's part, if peers cannot change elements on arrival: elements keep their size then.
  WEFT_FN Pack changed(const Pack& payload) const {
    if constexpr (mapped) {
      std::uint32_t words[8];
      map.change(payload, words);
      return {{words[0], words[1], words[2], words[3]}};
    } else {
      return payload;
    }
  }
  template <bool aligned16>
  WEFT_FN Columns<aligned16, mapped> place_of(const CopyTensor& t, std::uint64_t of_rows, std::uint32_t owner) const {
    std::uint64_t widening = 1;
    if constexpr (mapped) widening = map.widening();
    const std::uint64_t begin = shares.first(owner) * element * widening;
    return Columns<aligned16, mapped>({.data = static_cast<std::byte*>(t.output) + begin,
                                       .rows = of_rows,
                                       .row_bytes = t.row_bytes,
                                       .kept = shares.count(owner) * element,
                                       .stride = t.output_stride,
                                       .map = map});
  }
};

// All ranks get all rows.
template <bool mapped>
struct ColumnPartition : EqualPartition, ColumnPlaces<mapped> {
  template <Team T>
  WEFT_FN const ColumnPartition& table(T&) const {
    return *this;
  }
};

// Ranks are groups of neighbours, and counts are of groups. Each rank has its columns of all groups' slots, and gets
// its own group's rows.
template <Team T, bool mapped>
class GroupColumnTable : public CountedTable<T>, public ColumnPlaces<mapped> {
 public:
  WEFT_FN GroupColumnTable(T& team, const ColumnPlaces<mapped>& places, std::uint32_t groups, std::uint32_t group_ranks)
      : CountedTable<T>(team), ColumnPlaces<mapped>(places), groups_(groups), group_ranks_(group_ranks) {}

  WEFT_FN std::uint64_t rows_for(std::uint32_t receiver) const { return this->rows_of(receiver / group_ranks_); }
  WEFT_FN std::uint64_t input_row(std::uint32_t receiver) const { return this->offset_of(receiver / group_ranks_); }
  WEFT_FN std::uint64_t hash(std::uint32_t) const { return CountedTable<T>::hash(groups_); }

 private:
  std::uint32_t groups_, group_ranks_;
};

// `ranks` are groups.
template <bool mapped>
struct GroupColumnPartition : CountedPartition, ColumnPlaces<mapped> {
  std::uint32_t group_ranks;

  static constexpr bool kFirstRowKnown = false;
  static constexpr bool kPadded = false;
  template <Team T>
  WEFT_FN GroupColumnTable<T, mapped> table(T& team) const {
    return {team, *this, ranks, group_ranks};
  }
  template <Team T, class Note = NothingNoted>
  WEFT_FN bool prepare(T& team, const Call& call, const Prefetched& prefetched, Note note = {}) const {
    return prepare_for(team, prefetched, note, [&] { return call.rank / group_ranks; });
  }
  template <Team T>
  WEFT_FN MisfitInfo misfit(T&, std::uint32_t rank) const {
    MisfitInfo misfit = find_misfit(static_cast<const CountedPartition&>(*this), rank / group_ranks);
    misfit.place = misfit.what == Misfit::own_rows ? rank : misfit.place * group_ranks;  // a group's first rank
    return misfit;
  }
  WEFT_FN bool same_for_all() const { return false; }
};

}  // namespace weft::detail
