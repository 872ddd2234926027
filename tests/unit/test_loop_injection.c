/* Lines that a finding changes and the rows of a trial's plan, where several lines make loaders, or one line those of
 * training and of evaluation. */
#include "base/common.h"
#include "loop/injection.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LOADER "torch.utils.data.DataLoader"

static struct mr_explain_place loader_at(unsigned line, bool trains)
{
    return (struct mr_explain_place){
        .call = LOADER, .file = "train.py", .line = line, .loader = line, .trains = trains, .evaluates = !trains};
}

static struct mr_change workers(const char *target, unsigned line)
{
    return (struct mr_change){.kind = MR_CHANGE_INJECTION,
                              .framework = MR_IDIOM_PYTORCH,
                              .target = target,
                              .key = "num_workers",
                              .from = "0",
                              .to = "3",
                              .file = line ? "train.py" : NULL,
                              .line = line};
}

/* A notebook makes a loader for each of its loops: each gets the change. */
static void every_line_that_makes_a_loader_is_changed(void **state)
{
    (void)state;
    struct mr_explain_place place[] = {loader_at(3, true), loader_at(9, true), loader_at(12, false),
                                       loader_at(20, true)};
    place[3].by = "lightning"; /* a library's: no line of the program's has its arguments */
    struct mr_explanation x = {.place = place, .places = MR_ARRAY_LEN(place), .facts.framework = "pytorch"};
    struct mr_change change = workers(LOADER, 0);
    const struct mr_finding f = {.id = "PF1", .change = &change, .changes = 1};
    struct mr_arena arena = {0};
    struct mr_injection made = {0};
    json_t *list = NULL;
    struct mr_error err;
    assert_int_equal(mr_injection_of(&x, &f, &arena, &made, &err), 0);
    assert_string_equal(made.target, "DataLoader at train.py:3, and 2 more lines");
    mr_injection_done(&made);
    mr_arena_done(&arena);
    assert_int_equal(mr_injection_places(&x, &f, &list, &err), 0);
    assert_int_equal(json_array_size(list), 2);
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(list, i);
        assert_int_equal(json_integer_value(json_object_get(row, "line")), i ? 9 : 3);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(row, "set"), "num_workers")), 3);
    }
    json_decref(list);
}

/* A function makes both loaders, with other arguments: only those of evaluation are meant, and a diff would change both. */
static void a_line_that_makes_loaders_of_both_kinds_is_mixed(void **state)
{
    (void)state;
    for (unsigned apart = 0; apart < 2; apart++) {
        struct mr_explain_place place[] = {loader_at(5, true), loader_at(apart ? 6 : 5, false)};
        struct mr_explanation x = {.place = place, .places = MR_ARRAY_LEN(place), .facts.framework = "pytorch"};
        struct mr_change change = workers(LOADER " of evaluation", place[1].line);
        const struct mr_finding f = {.id = "EV1", .change = &change, .changes = 1};
        struct mr_arena arena = {0};
        struct mr_injection made = {0};
        struct mr_error err;
        json_t *list = NULL;
        assert_int_equal(mr_injection_of(&x, &f, &arena, &made, &err), 0);
        assert_int_equal(json_array_size(made.loaders), 1);
        json_t *row = json_array_get(made.loaders, 0);
        assert_string_equal(json_string_value(json_object_get(row, "role")), "evaluation");
        assert_int_equal(json_is_true(json_object_get(row, "mixed")), !apart);
        assert_int_equal(mr_injection_places(&x, &f, &list, &err), apart ? 0 : MR_E_UNSUPPORTED);
        assert_true(apart || strstr(err.message, "train.py:5 makes the loaders of training and of evaluation"));
        json_decref(list);
        mr_injection_done(&made);
        mr_arena_done(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_that_makes_a_loader_is_changed),
        cmocka_unit_test(a_line_that_makes_loaders_of_both_kinds_is_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
