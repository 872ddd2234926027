/* See the header. Pieces are written as they are read; their checksums are compared before the copy gets its name
 * (T3). */
#include "checkpoint/state_drain.h"

#include "checkpoint/state_image.h"

#include <errno.h>
#include <inttypes.h>

#define THREADS 2

int mr_state_drain_add(struct mr_state_drain *d, const char *folder, struct mr_error *err)
{
    struct mr_path dir = mr_checkpoint_dir_path(folder, d->save->step, MR_CHECKPOINT_COMPLETE);
    struct mr_checkpoint_list l;
    int rc = mr_checkpoint_read_list(&d->from->at, dir.text, &l, err);
    if (rc)
        return rc;
    if (l.step != d->save->step)
        rc = mr_error_plain(err, MR_E_CORRUPT, "the list in '%s' is of step %" PRIu64, dir.text, l.step);
    if (!rc)
        rc = mr_checkpoint_reading_add(&d->read, dir.text, &l, err);
    d->save->world = l.world;
    mr_checkpoint_list_done(&l);
    return rc;
}

static int write_piece(void *user, const struct mr_checkpoint_unit *u, uint64_t at, const void *buf, size_t n,
                       struct mr_error *err)
{
    struct mr_state_drain *d = user;
    const struct mr_save_place *to = d->to;
    const struct mr_pace_way way = {.pace = d->pace,
                                    .device = to->at.device,
                                    .by_steps = true,
                                    .flush = to->at.fsync && !to->direct,
                                    .stop = d->cut};
    int rc = mr_save_write(d->save, &d->save->file[u->file], &way, at, buf, n, err);
    if (!rc)
        mr_pace_tell(to->events, d->save->step, u->start_ns, n);
    return rc;
}

static bool is_stopped(void *user)
{
    const struct mr_state_drain *d = user;
    return mr_save_stopped(d->to);
}

int mr_state_drain_run(struct mr_state_drain *d, int rc, struct mr_error *err)
{
    struct mr_checkpoint_reading *r = &d->read;
    r->at = &d->from->at;
    r->direct = d->from->direct;
    r->threads = THREADS;
    r->piece_bytes = MR_STATE_CHUNK;
    r->way = (struct mr_pace_way){.pace = d->pace, .device = d->from->at.device, .stop = d->cut};
    r->stopped = is_stopped;
    r->stop = d->cut;
    r->take = write_piece;
    r->user = r->stopped_user = d;
    d->save->drained = true;
    d->save->place = d->to;
    if (mr_save_init(d->save, r->list.items, r->list.n, 0) && !rc)
        rc = mr_error_set(err, -ENOMEM, "cannot drain");
    if (!rc)
        rc = mr_save_begin(d->save, err);
    if (!rc)
        rc = mr_checkpoint_reading_run(r, err);
    rc = mr_save_end(d->save, rc, err);
    mr_checkpoint_reading_done(r);
    return rc;
}
