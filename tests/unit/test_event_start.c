/* How a program was started, as a trace keeps it: what of the environment, never a secret, whole command lines only, and
 * what damaged blocks cannot do. */
#include "event/mrt.h"
#include "event/start.h"
#include "import/trace_read.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEXT(s)                                                                                                        \
    {                                                                                                                  \
        .text = s, .len = sizeof(s)                                                                                    \
    }

static const char variables[] = "PATH=/bin\0OMP_NUM_THREADS=2\0HF_TOKEN=hf_abc\0AWS_SECRET_ACCESS_KEY=x\0EDITOR=vi\0"
                                "DATA_DIR=/data\0MODEL_PATH=/m\0STORE_PATH=s3://me:pw@host/b\0EPOCHS=3\0_=/bin/x\0"
                                "MILLRACE_SPOOL=/x\0WANDB_API_KEY=1\0NAMELESS";

static bool has_entry(const uint8_t *payload, size_t n, unsigned kind, const char *text)
{
    const uint8_t *at = payload;
    struct mr_start_entry e;
    while (mr_start_next(&at, payload + n, &e))
        if (e.kind == kind && e.len == strlen(text) && !memcmp(e.text, text, e.len))
            return true;
    return false;
}

static unsigned entries_of(const uint8_t *payload, size_t n, unsigned kind)
{
    const uint8_t *at = payload;
    struct mr_start_entry e;
    unsigned found = 0;
    while (mr_start_next(&at, payload + n, &e))
        found += e.kind == kind;
    return found;
}

static void what_matters_is_kept_and_no_secret(void **state)
{
    uint8_t payload[4096];
    uint32_t count;
    struct mr_start s = {
        .folder = {"/work/a b", 9}, .words = TEXT("python\0train.py\0--name\0a b"), .environment = TEXT(variables)};
    (void)state;
    size_t n = mr_start_encode(&s, payload, sizeof payload, &count);
    assert_int_equal(count, 1 + 4 + 4);
    assert_true(has_entry(payload, n, MR_START_FOLDER, "/work/a b"));
    assert_true(has_entry(payload, n, MR_START_WORD, "a b"));
    assert_true(has_entry(payload, n, MR_START_ENVIRONMENT, "PATH=/bin"));
    assert_true(has_entry(payload, n, MR_START_ENVIRONMENT, "OMP_NUM_THREADS=2"));
    assert_true(has_entry(payload, n, MR_START_ENVIRONMENT, "DATA_DIR=/data"));
    assert_true(has_entry(payload, n, MR_START_ENVIRONMENT, "MODEL_PATH=/m"));
    s.shell = (struct mr_start_text)TEXT("PATH=/bin\0EDITOR=vi");
    n = mr_start_encode(&s, payload, sizeof payload, &count);
    assert_int_equal(entries_of(payload, n, MR_START_ENVIRONMENT), 5); /* set for this run */
    assert_true(has_entry(payload, n, MR_START_ENVIRONMENT, "EPOCHS=3"));
}

static void a_command_line_is_whole_or_absent(void **state)
{
    uint8_t payload[4096];
    uint32_t count;
    const struct mr_start s = {.words = TEXT("python\0train.py\0--name\0value"),
                               .launcher = TEXT("mpirun\0-n\0"
                                                "4")};
    (void)state;
    for (size_t cap = 0; cap < 96; cap++) {
        size_t n = mr_start_encode(&s, payload, cap, &count);
        unsigned words = entries_of(payload, n, MR_START_WORD), launcher = entries_of(payload, n, MR_START_LAUNCHER);
        assert_true(n <= cap && count == words + launcher);
        assert_true((words == 0 || words == 4) && (launcher == 0 || launcher == 3));
    }
    assert_int_equal(count, 7);
}

static void launchers_are_told_by_their_names(void **state)
{
    static const char torchrun[] = "/usr/bin/python3\0/opt/venv/bin/torchrun\0--nproc_per_node=2\0train.py",
                      python[] = "python\0mpirun.py",
                      mpi[] = "/usr/lib64/openmpi/bin/mpirun\0-n\0"
                              "2";
    (void)state;
    assert_true(mr_start_launches(torchrun, sizeof torchrun));
    assert_true(mr_start_launches(mpi, sizeof mpi));
    assert_false(mr_start_launches(python, sizeof python));
    assert_false(mr_start_launches("", 0));
}

static void a_damaged_block_ends_where_it_ends(void **state)
{
    static const uint8_t longer[] = {MR_START_WORD, 200, 0, 0, 0, 'x', 'y'}, cut[] = {MR_START_WORD, 1, 0};
    const uint8_t *at = longer;
    struct mr_start_entry e;
    (void)state;
    assert_false(mr_start_next(&at, longer + sizeof longer, &e));
    at = cut;
    assert_false(mr_start_next(&at, cut + sizeof cut, &e));
}

static void the_block_of_this_process_names_its_folder(void **state)
{
    char *const argv[] = {"python", "train.py", NULL};
    uint8_t *file = malloc(MR_START_BLOCK + MR_MRT_HEADER), id[16] = {1};
    struct mr_trace *t;
    struct mr_error err;
    (void)state;
    mr_mrt_file_header(1, id, file);
    size_t n = mr_start_block(7, 1, argv, file + MR_MRT_HEADER);
    assert_true(n > 0);
    assert_int_equal(mr_trace_create(&t, &err), 0);
    assert_int_equal(mr_trace_add_memory(t, file, MR_MRT_HEADER + n, "test", &err), 0);
    assert_int_equal(t->starts, 1);
    const struct mr_trace_start *s = &t->start[0];
    size_t len = (size_t)(s->end - s->entries);
    assert_int_equal(s->key, 7);
    assert_int_equal(entries_of(s->entries, len, MR_START_FOLDER), 1);
    assert_int_equal(entries_of(s->entries, len, MR_START_WORD), 2);
    assert_true(has_entry(s->entries, len, MR_START_WORD, "train.py"));
    mr_trace_free(t);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_matters_is_kept_and_no_secret),
        cmocka_unit_test(a_command_line_is_whole_or_absent),
        cmocka_unit_test(launchers_are_told_by_their_names),
        cmocka_unit_test(a_damaged_block_ends_where_it_ends),
        cmocka_unit_test(the_block_of_this_process_names_its_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
