// Normed rows as packs, the message of the second hop. A row's packs are: the normed row, if there is an output of its
// type; the same as e4m3; the scales that were made. So rows that are cast cross the wire cast.
//
// No pack has a word of all ones, which is the wire's sentinel: a cast makes no byte 0xff, a NaN is made with another
// pattern, and no scale is a NaN or has the exponent 255. So packs arrive with the bits that were sent.
#pragma once

#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"
#include "ops/norm/norm_work.hpp"

namespace weft::detail {

// The numbers of packs of each kind in a row, and of its scales.
struct NormedRowShape {
  std::uint32_t normed, cast, scales;  // packs
  std::uint32_t groups;                // scales that are made

  WEFT_FN std::uint32_t packs() const { return normed + cast + scales; }
};

// Outputs of a call, as its kernel finds them. `casts`: there are e4m3 rows. Ordinary loads and stores, as in Rows.
// Places behind a row's last number or scale are sent as zero, and not written.
template <bool casts>
struct NormedRows {
  const NormWork& work;
  const NormedRowShape& shape;

  WEFT_FN Pack get(std::uint64_t row, std::uint32_t i) const {
    if (i < shape.normed) {
      const Vector v = vectors(row)[i];
      return {{v.word[0], v.word[1], v.word[2], v.word[3]}};
    }
    Pack pack{};
    if constexpr (casts) {
      i -= shape.normed;
      if (i < shape.cast) {
        const Half* const from = halves(row) + 2 * i;
        pack.word[0] = from[0].word[0], pack.word[1] = from[0].word[1];
        if (2 * i + 1 < work.row_packs) pack.word[2] = from[1].word[0], pack.word[3] = from[1].word[1];
      } else {
        each_scale(row, i - shape.cast, [&](std::uint64_t at, std::uint32_t k) {
          if (work.power_of_two) {
            pack.word[k / 4] |= std::uint32_t{static_cast<const std::uint8_t*>(work.scales)[at]} << (k % 4 * 8);
          } else {
            pack.word[k] = static_cast<const Word*>(work.scales)[at].word;
          }
        });
      }
    }
    return pack;
  }
  WEFT_FN void put(std::uint64_t row, std::uint32_t i, const Pack& pack) const {
    if (i < shape.normed) {
      vectors(row)[i] = {{pack.word[0], pack.word[1], pack.word[2], pack.word[3]}};
      return;
    }
    if constexpr (casts) {
      i -= shape.normed;
      if (i < shape.cast) {
        Half* const to = halves(row) + 2 * i;
        to[0] = {{pack.word[0], pack.word[1]}};
        if (2 * i + 1 < work.row_packs) to[1] = {{pack.word[2], pack.word[3]}};
      } else {
        each_scale(row, i - shape.cast, [&](std::uint64_t at, std::uint32_t k) {
          if (work.power_of_two) {
            static_cast<std::uint8_t*>(work.scales)[at] = static_cast<std::uint8_t>(pack.word[k / 4] >> (k % 4 * 8));
          } else {
            static_cast<Word*>(work.scales)[at].word = pack.word[k];
          }
        });
      }
    }
  }

 private:
  struct [[gnu::may_alias]] alignas(16) Vector {
    std::uint32_t word[4];
  };
  struct [[gnu::may_alias]] alignas(8) Half {
    std::uint32_t word[2];
  };
  struct [[gnu::may_alias]] Word {
    std::uint32_t word;
  };
  WEFT_FN Vector* vectors(std::uint64_t row) const {
    return static_cast<Vector*>(work.output) + row * work.output_stride;
  }
  WEFT_FN Half* halves(std::uint64_t row) const { return reinterpret_cast<Half*>(work.fp8) + row * work.fp8_stride; }
  // The scales of pack `i` of a row's scales.
  template <class Visit>
  WEFT_FN void each_scale(std::uint64_t row, std::uint32_t i, Visit visit) const {
    const std::uint32_t in_pack = work.power_of_two ? sizeof(Pack) : sizeof(Pack) / sizeof(float);
    const std::uint64_t first = row * work.scale_row_stride;
    for (std::uint32_t k = 0; k < in_pack; ++k) {
      const std::uint32_t group = i * in_pack + k;
      if (group < shape.groups) visit(first + group * work.scale_group_stride, k);
    }
  }
};

// A shard's rows as one stream of packs, fewer than 2^32; `first`: its first row in the outputs.
template <bool casts>
struct NormedStream {
  NormedRows<casts> rows;
  std::uint64_t first;

  WEFT_FN Pack get(std::uint64_t pack) const {
    const std::uint32_t at = static_cast<std::uint32_t>(pack), row = at / rows.shape.packs();
    return rows.get(first + row, at - row * rows.shape.packs());
  }
  WEFT_FN void put(std::uint64_t pack, const Pack& payload) const {
    const std::uint32_t at = static_cast<std::uint32_t>(pack), row = at / rows.shape.packs();
    rows.put(first + row, at - row * rows.shape.packs(), payload);
  }
};

}  // namespace weft::detail
