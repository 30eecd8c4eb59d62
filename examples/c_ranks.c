// The C interface: four ranks, each a thread of this process, add up a vector and send tokens to experts. No GPU is
// needed. docs/guide.md shows what is between the marks.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/c.h>

enum { ranks = 4, count = 1000, tokens = 16, hidden = 64, experts = 8, top_k = 2 };

// begin: docs/guide.md
// Whether a function succeeded. If not, the thread has the record and the words of its last failure.
static int good(weft_code code) {
  if (code == WEFT_OK) return 1;
  const weft_fault* fault = weft_last_fault();
  fprintf(stderr, "%s (rank %d, peer %d): %s\n", weft_code_name(code), fault->rank, fault->peer, weft_last_message());
  return 0;
}

static int add_up(const weft_group* group, float* x) {
  weft_all_reduce_args args;
  weft_all_reduce_args_init(&args, sizeof args);  // the defaults of C++
  args.input = x;
  args.output = x;
  args.count = count;
  args.type = WEFT_F32;
  return good(weft_all_reduce(group, &args));
}
// end: docs/guide.md

// Tokens with a bf16 of 1 and a little more go to two experts each, which return their rows as they are. Half of both
// is the token, bit for bit.
static int run_experts(const weft_group* group, int rank) {
  weft_moe_exchange_args definition;
  weft_moe_exchange_args_init(&definition, sizeof definition);
  definition.tokens = tokens;
  definition.hidden = hidden;
  definition.experts = experts;
  definition.top_k = top_k;
  weft_exchange* exchange = NULL;
  size_t output_rows = 0;
  if (!good(weft_exchange_create(group, &definition, &exchange)) ||
      !good(weft_exchange_output_rows(exchange, &output_rows)))
    return 0;

  uint16_t x[tokens * hidden], y[tokens * hidden];
  int32_t ids[tokens * top_k], counts[experts];
  float weights[tokens * top_k];
  for (int token = 0; token < tokens; ++token) {
    for (int column = 0; column < hidden; ++column) x[token * hidden + column] = (uint16_t)(0x3f80 + token);
    for (int k = 0; k < top_k; ++k) {
      ids[token * top_k + k] = (token + rank + 3 * k) % experts;
      weights[token * top_k + k] = 0.5f;
    }
  }
  // C99 aligns memory of malloc for any type; rows need 16 bytes, which it is on every machine of Weft's.
  uint16_t* rows = malloc(output_rows * hidden * sizeof *rows);

  weft_dispatch_args dispatch;
  weft_dispatch_args_init(&dispatch, sizeof dispatch);
  dispatch.input = x;
  dispatch.topk_ids = ids;
  dispatch.topk_weights = weights;
  dispatch.tokens = tokens;
  dispatch.output = rows;
  dispatch.counts = counts;
  weft_combine_args combine;
  weft_combine_args_init(&combine, sizeof combine);
  combine.input = rows;
  combine.output = y;
  // The halves: between a send and its wait there may be other work.
  const int right = rows != NULL && good(weft_dispatch_send(exchange, &dispatch, &combine.handle)) &&
                    good(weft_dispatch_wait(exchange, &combine.handle, &dispatch)) &&
                    good(weft_combine_send(exchange, &combine)) && good(weft_combine_wait(exchange, &combine)) &&
                    memcmp(x, y, sizeof x) == 0;
  free(rows);
  weft_exchange_destroy(exchange);
  return right;
}

struct rank {
  weft_communicator* communicator;
  int right;
};

static void* run_rank(void* data) {
  struct rank* mine = data;
  weft_group* world = NULL;
  int rank = -1;
  if (!good(weft_communicator_world(mine->communicator, &world)) || !good(weft_group_rank(world, &rank))) return NULL;
  float x[count];
  for (int i = 0; i < count; ++i) x[i] = (float)(rank + i);
  mine->right = add_up(world, x);
  for (int i = 0; i < count; ++i) mine->right = mine->right && x[i] == (float)(ranks * i + ranks * (ranks - 1) / 2);
  mine->right = mine->right && run_experts(world, rank);
  weft_group_destroy(world);
  return NULL;
}

int main(void) {
  weft_config config;
  weft_config_init(&config, sizeof config);
  config.device = WEFT_DEVICE_CPU;
  weft_communicator* communicators[ranks];
  if (!good(weft_communicator_local(ranks, &config, communicators))) return EXIT_FAILURE;

  struct rank each[ranks];
  pthread_t threads[ranks];
  for (int rank = 0; rank < ranks; ++rank) {
    each[rank].communicator = communicators[rank];
    each[rank].right = 0;
    if (pthread_create(&threads[rank], NULL, run_rank, &each[rank]) != 0) return EXIT_FAILURE;
  }
  int right = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    pthread_join(threads[rank], NULL);
    right = right && each[rank].right;
    weft_communicator_destroy(communicators[rank]);
  }
  if (!right) return EXIT_FAILURE;
  printf("weft %s: %d ranks added up and sent tokens to experts, in C\n", weft_version(), ranks);
  return EXIT_SUCCESS;
}
