/* SPDX-License-Identifier: MIT
 *
 * Which keys rows may attend to by length, causality and windows, against the definition in
 * mha.h, key by key: for small sizes all of them, and at the ends of what positions and windows
 * can be. Knows nothing of scores.
 */
#include "mask.h"
#include "problem.h"

/* How far `to` is beyond `from`; 0 if it isn't. */
static uint64_t beyond(int64_t from, int64_t to) {
    return to > from ? (uint64_t)to - (uint64_t)from : 0;
}

static bool attends(const struct mha_mask_view *view, size_t query, size_t key) {
    int64_t p = (int64_t)query + view->offset, j = (int64_t)key;
    return key < view->kv_length && (!view->causal || j <= p) &&
           (view->window_left == 0 || beyond(j, p) < view->window_left) &&
           (view->window_right == 0 || beyond(p, j) < view->window_right);
}

/* The range of the rows together holds all the keys that one of them attends to, and no more. */
static void check_range(const struct mha_mask_view *view, size_t first, size_t count, size_t keys) {
    size_t begin, end;
    mha_mask_range(view, first, count, &begin, &end);
    ck_assert_msg(begin <= view->kv_length && end <= view->kv_length, "%s: keys %zu .. %zu",
                  case_name(), begin, end);
    for (size_t key = 0; key < keys; key++) {
        bool any = false;
        for (size_t i = first; i < first + count; i++) {
            any = any || attends(view, i, key);
        }
        ck_assert_msg(any == (key >= begin && key < end),
                      "%s: rows %zu .. %zu, key %zu: attended to by %s, keys %zu .. %zu said",
                      case_name(), first, first + count - 1, key, any ? "one" : "none", begin, end);
    }
}

START_TEST(small_ranges) {
    struct mha_mask_view view = {.causal = _i % 2 != 0};
    for (view.kv_length = 0; view.kv_length <= 6; view.kv_length++) {
        for (size_t windows = 0; windows < 100; windows++) {
            view.window_left = windows % 10;
            view.window_right = windows / 10;
            for (view.offset = -9; view.offset <= 9; view.offset++) {
                begin_case("%zu keys, windows %zu and %zu, offset %d%s", view.kv_length,
                           view.window_left, view.window_right, (int)view.offset,
                           view.causal ? ", causal" : "");
                for (size_t first = 0; first < 4; first++) {
                    for (size_t count = 1; count < 5; count++) {
                        check_range(&view, first, count, view.kv_length + 2);
                    }
                }
            }
        }
    }
}
END_TEST

/* As far out as mha_mask_check allows positions, and windows around every sum. */
START_TEST(ranges_at_the_ends) {
    const int64_t most = INT64_MAX / 4;
    const int64_t offsets[] = {
        0, most, most - 1, -most, -most + 2, INT64_C(1) << 33, -(INT64_C(1) << 33)};
    for (size_t o = 0; o < sizeof offsets / sizeof *offsets; o++) {
        uint64_t far = beyond(0, offsets[o]) + beyond(offsets[o], 0);
        const uint64_t windows[] = {1,          far - 2,    far - 1,        far,
                                    far + 1,    far + 2,    far + 6,        1u << 31,
                                    UINT32_MAX, UINT64_MAX, UINT64_MAX / 2, UINT64_MAX / 2 + 1};
        enum { WINDOWS = sizeof windows / sizeof *windows };
        for (size_t w = 0; w < 3 * WINDOWS; w++) {
            uint64_t wide = windows[w % WINDOWS];
            size_t window = wide < SIZE_MAX ? (size_t)wide : SIZE_MAX;
            struct mha_mask_view view = {
                .kv_length = 4,
                .causal = _i % 2 != 0,
                .offset = offsets[o],
                .window_left = w / WINDOWS != 1 ? window : 0,
                .window_right = w / WINDOWS != 2 ? window : 0,
            };
            begin_case("windows %zu and %zu, offset %lld%s", view.window_left, view.window_right,
                       (long long)view.offset, view.causal ? ", causal" : "");
            check_range(&view, 0, 1, 6);
            check_range(&view, 0, 4, 6);
        }
    }
}
END_TEST

/* The same through mha_attention: what the window leaves out has no weight. */
START_TEST(window_as_far_as_the_query) {
    begin_case("a window of 2^61 - 1 ends before key 0");
    const float ones[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float output, attention[4];
    const mha_mask mask = {.window_left = (size_t)(INT64_MAX / 4), .query_offset = INT64_MAX / 4};
    mha_context *context = new_context();
    mha_attention_args args = one_head(1, 4, 1, ones, ones, ones, &output);
    args.attention = attention;
    args.mask = &mask;
    ck_assert_succeeds(mha_attention(context, &args));
    mha_context_destroy(&context);
    bool near = sizeof(size_t) > 4; /* else all keys are too far */
    ck_assert(attention[0] == 0.0f && (attention[1] != 0.0f) == near && (output != 0.0f) == near);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mask");
    TCase *tests = tcase_create("mask");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, small_ranges, 0, 2);
    tcase_add_loop_test(tests, ranges_at_the_ends, 0, 2);
    tcase_add_test(tests, window_as_far_as_the_query);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
