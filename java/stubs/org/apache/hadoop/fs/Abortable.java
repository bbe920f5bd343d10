package org.apache.hadoop.fs;

/** The part of Hadoop's class that the log store uses. See java/README.md. */
public interface Abortable {
    interface AbortableResult {}
}
